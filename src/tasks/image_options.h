#pragma once

#include <memory>
#include <optional>

#include "data/image_cache.h"
#include "data/images/augment.h"
#include "data/loader_options.h"
#include "models/model.h"
#include "recipe/recipe.h"
#include "tasks/job.h"

/// Converts the settings of a recipe that all image tasks share to options.
namespace hearth::tasks {

/// Returns model.num_classes of the recipe; if it is 0, the number of classes in the data.
int64_t num_classes_of(const recipe::Recipe& recipe);
/// Returns the options of the image model that model.name selects.
models::ModelOptions model_options(const recipe::Recipe& recipe);
/// Returns the options of the teacher's model; nullopt without a teacher.
std::optional<models::ModelOptions> teacher_options(const Job& job);
/// Returns options for augmenting and normalizing images.
data::PixelOptions pixel_options(const recipe::Recipe& recipe);
/// Returns the memory budget of the cache of decoded images; null: no cache.
std::shared_ptr<data::ImageCacheBudget> image_budget(const recipe::Recipe& recipe);
/// Returns loader_options() with the min micro-batch that the model can train on: 2 if, with one row, a batch
/// norm gets a single value per channel (DeepLab's pooled features, mlp).
data::LoaderOptions image_loader_options(const recipe::Recipe& recipe);

}  // namespace hearth::tasks
