#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "recipe/choices.h"
#include "recipe/recipe.h"

namespace YAML {
class Node;
}

namespace hearth::recipe {

inline constexpr std::string_view kNamesHere = "{}";

/// All that is known of one key.
struct Field {
  std::string key;
  std::string doc;  ///< kNamesHere stands for its names in Choices
  /// Takes the value; returns what was expected when it does not fit.
  std::function<std::string(Recipe&, const YAML::Node&, const Choices&)> read;
  std::function<std::string(const Recipe&)> write;
  bool is_list = false;
  std::string advice = "";  ///< what to try in place of a value that does not fit; empty: the default
};

}  // namespace hearth::recipe
