#pragma once

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Returns a recipe's optimizer options. UserError if optimizer.rates are not pairs NAME=FACTOR.
engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe);
DType dtype_of(recipe::Precision precision);
engine::Parallel parallel_of(recipe::Parallel parallel);
/// Returns the algorithm that compresses gradients between devices.
passes::CompressOptions::Way way_of(recipe::Compress compress);

}  // namespace hearth::run
