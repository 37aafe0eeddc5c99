#pragma once

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// The optimizer of a recipe. UserError for optimizer.rates that are no pairs.
engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe);
DType dtype_of(recipe::Precision precision);
engine::Parallel parallel_of(recipe::Parallel parallel);
/// How gradients are compressed between devices.
passes::CompressOptions::Way way_of(recipe::Compress compress);

}  // namespace hearth::run
