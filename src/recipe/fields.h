#pragma once

#include <yaml-cpp/yaml.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "recipe/recipe.h"

namespace hearth::recipe {

/// How one key is read into a recipe and written out again.
struct Field {
  std::string key;
  std::string doc;
  /// Takes the value; returns what was expected when it does not fit.
  std::function<std::string(Recipe&, const YAML::Node&)> read;
  std::function<std::string(const Recipe&)> write;
  bool is_list = false;
  std::string advice = "";  ///< what to try in place of a value that does not fit; empty: the usual one
};

/// Every key of a recipe, those of a section side by side.
const std::vector<Field>& recipe_fields();

/// What Recipe::parallel may be.
std::vector<std::string> parallel_ways();

}  // namespace hearth::recipe
