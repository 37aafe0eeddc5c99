#pragma once

#include <memory>

#include "data/image_cache.h"
#include "data/images/augment.h"
#include "data/loader_options.h"
#include "models/model.h"
#include "recipe/recipe.h"

/// Options of recipes that all image tasks share.
namespace hearth::tasks {

/// Returns the recipe's number of classes; if 0, the number of classes in the data.
int64_t num_classes_of(const recipe::Recipe& recipe);
/// Returns the options of an image model that is built by name.
models::ModelOptions model_options(const recipe::Recipe& recipe);
/// Returns how images are resized and normalized.
data::PixelOptions pixel_options(const recipe::Recipe& recipe);
/// Returns the memory budget of the cache of decoded images; null: no cache.
std::shared_ptr<data::ImageCacheBudget> image_budget(const recipe::Recipe& recipe);
/// Returns loader options with the model's min batch: 2 if one row leaves a batch norm a single value per
/// channel (DeepLab's pooled features, mlp).
data::LoaderOptions image_loader_options(const recipe::Recipe& recipe);

}  // namespace hearth::tasks
