#pragma once

#include <string>
#include <vector>

#include "recipe/field.h"

namespace hearth::recipe {

/// Every key of a recipe, those of a section side by side. A new key touches two files: recipe.h, which gets
/// its member, and fields.cpp, which gets one entry; reading, range checks, writing and documentation follow
/// from it.
const std::vector<Field>& recipe_fields();
/// What the key means.
std::string doc_of(const Field& field, const Choices& choices);

}  // namespace hearth::recipe
