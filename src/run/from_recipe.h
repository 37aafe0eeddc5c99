#pragma once

#include <memory>

#include "engine/engine.h"
#include "hub/export_onnx.h"
#include "recipe/recipe_file.h"

namespace hearth::run {

/// What keys of a recipe can name in this program, out of its registries.
const recipe::Choices& recipe_choices();
/// recipe/recipe_file.h's, with those choices.
recipe::Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
recipe::Recipe parse_recipe(const std::string& yaml, const std::string& where,
                            std::span<const std::string> overrides = {});

/// The engine a recipe asks for, on GPU number `device` where it wants GPUs, as one of `num_workers`; 0:
/// one for each device.
engine::EngineOptions engine_options(const recipe::Recipe& recipe, int device = 0, int64_t num_workers = 0);
/// Switches Winograd convolutions of this process off if passes.off contains "winograd", otherwise on.
void switch_winograd(const recipe::Recipe& recipe);
/// Throws a UserError if the file model.config does not exist.
void check_config_file(const recipe::Recipe& recipe);
/// UserError where the files of first weights that a recipe names cannot be opened: known at once, and not
/// when the data has been read.
void check_first_weights(const recipe::Recipe& recipe);

/// How a run on images is exported to ONNX: what it is called, and what a reader has to know of its pictures
/// and classes (task, model, names, mean, std, layout, as text). UserError for a language model's run.
hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run);

}  // namespace hearth::run
