#pragma once

#include <string>

#include "base/file.h"
#include "engine/engine.h"

namespace hearth::tasks {

/// Predicts images with a trained model, one image per call.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Evaluates the model on an image (a micro-batch of one row), writes result files if the task has any, and
  /// returns a line of text about the prediction. Throws a UserError if the image cannot be read.
  virtual std::string predict(engine::Engine& engine, const fs::path& image) = 0;
  /// True if predict() writes files that are named after the image.
  virtual bool writes_files() const { return true; }
  /// Writes the result files that summarize all images. Called once, after the last predict().
  virtual void finish() {}
};

/// Throws a UserError that the weights are not usable if `result`, computed with them, is not finite.
/// `weights`: path of the weights for the message.
void check_finite(double result, const fs::path& weights);

}  // namespace hearth::tasks
