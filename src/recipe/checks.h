#pragma once

#include "recipe/key_locations.h"
#include "recipe/recipe.h"

namespace hearth::recipe {

/// Sets values that depend on other keys: data keys of the objective, mean and std of data.normalize, and the
/// division of an update into shards and micro-batches. Throws a UserError if the devices cannot share an
/// update.
void set_dependent_values(Recipe& recipe, const KeyLocations& locations);
/// Throws a UserError if values of a recipe contradict each other or a required key is missing.
void check(const Recipe& recipe, const KeyLocations& locations);

}  // namespace hearth::recipe
