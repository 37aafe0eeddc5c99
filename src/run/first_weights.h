#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Loads the frozen weights, which checkpoints do not contain: those of a teacher that runs during training,
/// and the base weights of a model with an adapter.
void load_frozen_weights(engine::Engine& engine, const recipe::Recipe& recipe);
/// Loads the initial weights of a run from the files in its recipe. Returns a sentence for each tensor of an
/// image model that does not match the model and was not loaded.
std::vector<std::string> load_initial_weights(engine::Engine& engine, const recipe::Recipe& recipe);

}  // namespace hearth::run
