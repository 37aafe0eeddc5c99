#pragma once

#include <functional>
#include <optional>

#include "data/image_rows.h"
#include "engine/engine.h"
#include "models/model.h"
#include "recipe/recipe.h"

namespace hearth::tasks {

/// Options of image classification with softmax cross entropy.
struct ClassifierOptions {
  models::ModelOptions model;
  /// If set, builds the logits from the images instead of models::find_model(model.name).
  std::function<ir::ValueId(nn::Builder&, ir::ValueId images)> build_model = {};
  double label_smoothing = 0;
  recipe::Distill distill = {};                      ///< loss with a teacher
  std::optional<models::ModelOptions> teacher = {};  ///< model of the teacher
};

/// Returns the objective. A micro-batch is {images f32 [rows, height, width, channels], labels i32 [rows]}; a
/// sample is an image.
std::shared_ptr<const engine::Objective> classifier(ClassifierOptions options);

/// Indices for Engine::output() after an evaluation. kCorrect: number of correct predictions, an f32 scalar;
/// kProbabilities: softmax probabilities, f32 [rows, classes].
enum ClassifierOutput : size_t { kCorrect = 0, kProbabilities = 1 };

}  // namespace hearth::tasks
