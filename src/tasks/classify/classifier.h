#pragma once

#include <functional>

#include "data/image_rows.h"
#include "engine/engine.h"
#include "models/model.h"

namespace hearth::tasks {

/// Images into classes by softmax and cross entropy.
struct ClassifierOptions {
  models::ModelOptions model;
  /// Replaces the named model by one of the caller's own.
  std::function<ir::ValueId(nn::Builder&, ir::ValueId images)> build_model = {};
  double label_smoothing = 0;
};

/// A micro-batch is {images f32 [rows, height, width, channels], labels i32 [rows]}; a sample is an image.
std::shared_ptr<const engine::Objective> classifier(ClassifierOptions options);

/// Positions in Engine::output() after an evaluation: how many images were right, f32 []; softmax, f32
/// [rows, classes].
enum ClassifierOutput : size_t { kCorrect = 0, kProbabilities = 1 };

}  // namespace hearth::tasks
