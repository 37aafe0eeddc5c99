#pragma once

#include <string>

#include "base/file.h"
#include "engine/engine.h"

namespace hearth::tasks {

/// Says what a trained model sees in pictures, one after the other.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// The line about a picture for people, and its files in the folder of predictions, where the task writes
  /// any. The engine evaluates micro-batches of one row. UserError for a picture that cannot be read.
  virtual std::string predict(engine::Engine& engine, const fs::path& picture) = 0;
  /// Whether it writes files, called by the pictures' names.
  virtual bool writes_files() const { return true; }
  /// After the last picture: files about all of them.
  virtual void finish() {}
};

/// UserError for results of weights that are not finite, or too large: they mean nothing.
void check_finite(double result, const fs::path& weights);

}  // namespace hearth::tasks
