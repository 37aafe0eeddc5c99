#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Fills in data.class_numbers of a recipe for mask files, and model.num_classes and model.class_names if
/// num_classes is 0: from an existing run in the folder `run`, else from all masks (data::decide_masks).
/// Returns sentences on the decisions. Other recipes are not changed.
std::vector<std::string> decide_mask_numbers(recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::run
