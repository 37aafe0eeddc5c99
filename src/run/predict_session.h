#pragma once

#include <memory>

#include "engine/engine.h"
#include "recipe/recipe.h"
#include "tasks/predictor.h"

namespace hearth::run {

/// A run's best weights (else its last) that are opened once and predict one image after the other.
class PredictSession {
 public:
  /// Opens what the predictions need beside the weights. `out`: folder of predicted images; empty:
  /// RUN/predictions. The weights are loaded for the first image. UserError for a run that predicts nothing
  /// of images.
  PredictSession(const recipe::Recipe& recipe, const fs::path& run, fs::path out);

  /// True if it writes files, which are named after the images.
  bool writes_files() const { return predictor_->writes_files(); }
  /// Returns the line for people about an image. UserError for an image that cannot be read.
  std::string predict(const fs::path& image);
  /// Call after the last image: writes the files about all images.
  void finish() { predictor_->finish(); }
  const fs::path& weights() const { return weights_; }

 private:
  engine::EngineOptions options_;
  fs::path weights_;
  std::unique_ptr<tasks::Predictor> predictor_;
  std::unique_ptr<engine::Engine> engine_;  ///< null until the first image
};

}  // namespace hearth::run
