#pragma once

#include <memory>

#include "engine/engine.h"
#include "recipe/recipe.h"
#include "tasks/task.h"

namespace hearth::run {

/// What training minimizes, from the model alone: no data is opened.
std::shared_ptr<const engine::Objective> objective_of(const recipe::Recipe& recipe);
/// The engine a recipe asks for, on GPU number `device` where it wants GPUs, as one of `num_workers`; 0:
/// one for each device.
engine::EngineOptions engine_options(const recipe::Recipe& recipe, int device = 0, int64_t num_workers = 0);
/// UserError where the files of first weights that a recipe names cannot be opened: known at once, and not
/// when the data has been read.
void check_first_weights(const recipe::Recipe& recipe);

/// The task of a recipe, its data opened; UserError where the data does not fit the model.
std::unique_ptr<tasks::Task> open_task(const recipe::Recipe& recipe);

}  // namespace hearth::run
