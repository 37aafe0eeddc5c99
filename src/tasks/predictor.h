#pragma once

#include <string>

#include "base/file.h"
#include "engine/engine.h"

namespace hearth::tasks {

/// Predictions of a trained model for images, one call per image.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Evaluates the model on an image (a micro-batch of one row), writes its files, if any, and returns a line
  /// of text about the prediction. UserError if the image cannot be read.
  virtual std::string predict(engine::Engine& engine, const fs::path& image) = 0;
  /// True if predict() writes files that are named after the image.
  virtual bool writes_files() const { return true; }
  /// Writes the files about all images. Called once, after the last predict().
  virtual void finish() {}
};

/// Throws a UserError if a result is not finite: such weights are not usable. `weights`: path for the
/// message.
void check_finite(double result, const fs::path& weights);

}  // namespace hearth::tasks
