#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "engine/engine.h"

namespace hearth::tasks {

struct PredictedClass {
  std::string name;
  double share = 0;  ///< probability of the class, or its fraction of the pixels of a mask
};

/// A detected object: upper left corner and size in pixels of the image.
struct PredictedBox {
  std::string name;
  double score = 0;
  double x = 0, y = 0, width = 0, height = 0;
};

/// Prediction for an image; which parts are filled in depends on the task.
struct ImagePrediction {
  std::vector<PredictedClass> classes;  ///< highest share first
  std::vector<PredictedBox> boxes;      ///< highest score first
  std::string mask_png;                 ///< class of each pixel as palette index
  bool has_boxes = false;               ///< true for a detector, even if it found nothing
};

/// Predicts images with a trained model, one image per call.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Evaluates the model on the bytes of an image file and writes no files. `name`: name of the image in
  /// messages. Throws a UserError if the image cannot be read.
  virtual ImagePrediction analyze(engine::Engine& engine, std::span<const std::byte> image,
                                  std::string_view name) = 0;
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
