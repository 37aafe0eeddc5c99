#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Loads the weights under an adapter, which no checkpoint holds; nothing for a model without an adapter.
void load_frozen_weights(engine::Engine& engine, const recipe::Recipe& recipe);
/// Loads the weights that a run begins with from the files that the recipe names. Returns a sentence for
/// each tensor of an image model that does not fit.
std::vector<std::string> load_first_weights(engine::Engine& engine, const recipe::Recipe& recipe);

}  // namespace hearth::run
