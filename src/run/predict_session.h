#pragma once

#include <memory>

#include "engine/engine.h"
#include "recipe/recipe.h"
#include "tasks/predictor.h"

namespace hearth::run {

/// A trained model that is loaded once and predicts images one by one. Uses the best weights of a run, or its
/// last weights if it has no best ones.
class PredictSession {
 public:
  /// Opens the predictor of the run's task. The first predict() loads the weights. `out`: output folder for
  /// files; empty: RUN/predictions. Throws a UserError if the task of the run does not predict from images.
  PredictSession(const recipe::Recipe& recipe, const fs::path& run, fs::path out);

  /// True if predict() writes a file for each image, named after the image.
  bool writes_files() const { return predictor_->writes_files(); }
  /// Predicts an image and returns the results as a line of text. Throws a UserError if the image cannot be
  /// read.
  std::string predict(const fs::path& image);
  /// Predicts the bytes of an image file and writes no files; see Predictor::analyze().
  tasks::ImagePrediction analyze(std::span<const std::byte> image, std::string_view name) {
    return predictor_->analyze(engine(), image, name);
  }
  /// Writes the files that summarize all images. Call after the last image.
  void finish() { predictor_->finish(); }
  const fs::path& weights() const { return weights_; }

 private:
  engine::Engine& engine();

  engine::EngineOptions options_;
  fs::path weights_;
  std::unique_ptr<tasks::Predictor> predictor_;
  std::unique_ptr<engine::Engine> engine_;  ///< null before the first predict()
};

}  // namespace hearth::run
