#pragma once

#include <memory>
#include <optional>

#include "engine/engine.h"
#include "hub/export_onnx.h"
#include "recipe/recipe_file.h"
#include "tasks/job.h"
#include "tasks/task_def.h"

namespace hearth::run {

/// Returns the allowed names of recipe keys: registered models, datasets, optimizers and so on.
const recipe::Choices& recipe_choices();
/// Read a recipe with the allowed names of recipe_choices(); see recipe/recipe_file.h.
recipe::Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
recipe::Recipe parse_recipe(const std::string& yaml, const std::string& where,
                            std::span<const std::string> overrides = {});
/// Reads the recipe of a run; nullopt if the folder is no run: it has no config.yaml or is a diffusers
/// folder.
std::optional<recipe::Recipe> recipe_of_run(const fs::path& folder);
/// Returns the format of the model at a path: a run, a model folder or an adapter.
tasks::ModelFormat model_format(const fs::path& path);

/// Returns the engine options for one worker of a job. `device`: number of the worker's GPU, if the recipe
/// uses GPUs; `num_workers`: 0 for recipe.devices.
engine::EngineOptions engine_options(const tasks::Job& job, int device = 0, int64_t num_workers = 0);
/// Throws a UserError if the file of the recipe's initial weights is missing or damaged. Called before the
/// data is read, which may take long.
void check_initial_weights(const tasks::Job& job);

/// Returns the ONNX export options of an image run: name of the graph, and metadata for preprocessing (task,
/// class names, mean, std, color, fit, as text). Throws a UserError for the run of a language model.
hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::run
