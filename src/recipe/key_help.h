#pragma once

#include <string>
#include <vector>

#include "recipe/choices.h"

namespace hearth::recipe {

/// Help of a recipe key.
struct KeyHelp {
  std::string name;           ///< "train.batch"
  std::string default_value;  ///< YAML
  std::string doc;
};

/// Returns the help of all keys, grouped by section.
std::vector<KeyHelp> key_help(const Choices& choices);

}  // namespace hearth::recipe
