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
  /// Description for users; kNamesPlaceholder is replaced by the key's allowed names (Choices).
  std::string doc;
  /// Parses a value into the recipe. Returns "" or a description of the expected value.
  std::function<std::string(Recipe&, const YAML::Node&, const Choices&)> read;
  /// Returns the value as YAML text.
  std::function<std::string(const Recipe&)> write;
  bool is_list = false;  ///< true if the value is a list, so that overrides of the key are parsed as YAML
  /// Value that the message about an invalid value suggests; empty: the default value.
  std::string advice = "";
};

}  // namespace hearth::recipe
