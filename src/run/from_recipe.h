#pragma once

#include <memory>

#include "engine/engine.h"
#include "hub/export_onnx.h"
#include "recipe/recipe_file.h"
#include "tasks/job.h"

namespace hearth::run {

/// What keys of a recipe can name in this program, out of its registries.
const recipe::Choices& recipe_choices();
/// recipe/recipe_file.h's, with those choices.
recipe::Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
recipe::Recipe parse_recipe(const std::string& yaml, const std::string& where,
                            std::span<const std::string> overrides = {});

/// Returns the options of the engine for a job, on GPU number `device` if the recipe asks for GPUs, as one of
/// `num_workers` workers; 0: one for each device.
engine::EngineOptions engine_options(const tasks::Job& job, int device = 0, int64_t num_workers = 0);
/// Opens the files of first weights that a recipe names. UserError if that fails, before the data is read.
void check_first_weights(const tasks::Job& job);

/// How a run on images is exported to ONNX: what it is called, and what a reader has to know of its pictures
/// and classes (task, model, names, mean, std, layout, as text). UserError for a language model's run.
hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::run
