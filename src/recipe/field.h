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

/// Placeholder in Field::doc for the allowed names of the key.
inline constexpr std::string_view kNamesPlaceholder = "{}";

/// Definition of a recipe key.
struct Field {
  std::string key;  ///< full name, "train.batch"
  std::string doc;  ///< meaning, for users; kNamesPlaceholder is replaced by the names in Choices
  /// Parses a value into the recipe. Returns "" or a description of the expected value.
  std::function<std::string(Recipe&, const YAML::Node&, const Choices&)> read;
  /// Returns the value in YAML.
  std::function<std::string(const Recipe&)> write;
  bool is_list = false;     ///< true if overrides of the key are parsed as YAML
  std::string advice = "";  ///< suggested value after an invalid one; empty: the default
};

}  // namespace hearth::recipe
