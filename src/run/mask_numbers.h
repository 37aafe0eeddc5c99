#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Fills in data.class_numbers, and model.num_classes and class_names if it is 0, of a recipe for masks in
/// files: from the run that is in the folder `run` already, or else from all masks (data::decide_masks).
/// Returns sentences on what was decided. Any other recipe stays as it is.
std::vector<std::string> decide_mask_numbers(recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::run
