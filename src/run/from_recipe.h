#pragma once

#include <memory>

#include "data/boxes/boxes.h"
#include "data/dataset.h"
#include "engine/engine.h"
#include "hub/export_onnx.h"
#include "models/model.h"
#include "recipe/recipe_file.h"
#include "run/data_options.h"
#include "tasks/language/text_task.h"
#include "tasks/predictor.h"
#include "tasks/task.h"

namespace hearth::run {

/// What keys of a recipe can name in this program, out of its registries.
const recipe::Choices& recipe_choices();
/// recipe/recipe_file.h's, with those choices.
recipe::Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides = {});
recipe::Recipe parse_recipe(const std::string& yaml, const std::string& where,
                            std::span<const std::string> overrides = {});

tasks::TextOptions text_options(const recipe::Recipe& recipe);
tasks::TextTaskOptions text_task_options(const recipe::Recipe& recipe);
/// What training minimizes, from the model alone: no data is opened.
std::shared_ptr<const engine::Objective> objective_of(const recipe::Recipe& recipe);
/// The engine a recipe asks for, on GPU number `device` where it wants GPUs, as one of `num_workers`; 0:
/// one for each device.
engine::EngineOptions engine_options(const recipe::Recipe& recipe, int device = 0, int64_t num_workers = 0);
/// Throws a UserError if the file model.config does not exist.
void check_config_file(const recipe::Recipe& recipe);
/// UserError where the files of first weights that a recipe names cannot be opened: known at once, and not
/// when the data has been read.
void check_first_weights(const recipe::Recipe& recipe);

/// The task of a recipe, its data opened; GPU number `device` helps to prepare it where the recipe wants
/// GPUs. UserError where the data does not fit the model.
std::unique_ptr<tasks::Task> open_task(const recipe::Recipe& recipe, int device = 0);

/// The boxed images of a recipe for detection, its split "train" or "test".
data::BoxedPictures boxed_pictures(const recipe::Recipe& recipe, const std::string& split);
/// What a recipe's model is for.
enum class Purpose : uint8_t { classify, segment, detect, text, diffuse };
Purpose purpose_of(const recipe::Recipe& recipe);
/// Reads the class names of the training data of an image model. Decodes no images, except masks if only
/// their values give the number of classes.
std::vector<std::string> classes_of_data(const recipe::Recipe& recipe);

/// Where predictions are made.
struct PredictionPaths {
  fs::path run, out, weights;
};
/// How a run on images is exported to ONNX: what it is called, and what a reader has to know of its pictures
/// and classes (task, model, names, mean, std, layout, as text). UserError for a language model's run.
hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run);
/// What judges pictures with a run's weights. UserError for a language model's run.
std::unique_ptr<tasks::Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths);

}  // namespace hearth::run
