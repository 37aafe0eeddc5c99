#pragma once

#include <string>
#include <vector>

#include "recipe/field.h"

namespace hearth::recipe {

/// Returns all keys of a recipe, grouped by section. A new key needs a member in recipe.h and an entry in
/// fields.cpp; code that parses, checks, writes and documents recipes uses the entry.
const std::vector<Field>& recipe_fields();
/// Returns the description of a key, including its allowed names.
std::string doc_of(const Field& field, const Choices& choices);

}  // namespace hearth::recipe
