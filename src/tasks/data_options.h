#pragma once

#include "data/dataset.h"
#include "data/loader_options.h"
#include "data/masks/masks.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Returns the order, batch size and threads with which the recipe's training rows are read.
data::LoaderOptions loader_options(const recipe::Recipe& recipe);
/// Returns how to open the recipe's image dataset. `split`: "train" or "test".
data::DatasetOptions dataset_options(const recipe::Recipe& recipe, const std::string& split);
/// Returns the options of a segmentation recipe's masks. `split`: "train" or "test". UserError if
/// data.unlabeled is invalid.
data::MaskOptions mask_options(const recipe::Recipe& recipe, const std::string& split);

}  // namespace hearth::tasks
