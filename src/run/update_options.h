#pragma once

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Returns a recipe's optimizer options. Throws a UserError if an entry of optimizer.rates is not of the form
/// MODULE=FACTOR.
engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe);

}  // namespace hearth::run
