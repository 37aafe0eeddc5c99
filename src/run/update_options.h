#pragma once

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Returns a recipe's optimizer options. UserError if optimizer.rates are not pairs NAME=FACTOR.
engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe);

}  // namespace hearth::run
