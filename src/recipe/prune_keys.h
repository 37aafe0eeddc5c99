#pragma once

#include <vector>

#include "recipe/field.h"
#include "recipe/key_locations.h"

/// Keys of pruning during training: their rows in the table of fields.cpp, and their checks.
namespace hearth::recipe {

void add_prune_fields(std::vector<Field>& fields);
/// Throws a UserError if the keys of pruning contradict each other or other keys.
void check_prune(const Recipe& recipe, const KeyLocations& locations);

}  // namespace hearth::recipe
