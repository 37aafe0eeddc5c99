#pragma once

#include "data/dataset.h"
#include "data/loader_options.h"
#include "data/masks/masks.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Returns options for reading the training rows of a recipe: order, batch size and threads.
data::LoaderOptions loader_options(const recipe::Recipe& recipe);
/// Returns options for opening the image dataset of a recipe. `split`: "train" or "test".
data::DatasetOptions dataset_options(const recipe::Recipe& recipe, const std::string& split);
/// Returns options for opening the images and masks of a segmentation recipe. `split`: "train" or "test".
/// Throws a UserError if data.unlabeled is invalid.
data::MaskOptions mask_options(const recipe::Recipe& recipe, const std::string& split);

}  // namespace hearth::tasks
