#pragma once

#include "data/images/image.h"
#include "data/loader_options.h"
#include "models/model.h"
#include "tasks/predictor.h"

namespace hearth::tasks {

/// The three likeliest classes of a picture, for people; nothing is written.
class ClassPredictor : public Predictor {
 public:
  /// Classes beyond the names are called by their numbers; `weights` is for messages.
  ClassPredictor(models::ModelOptions model, data::PixelOptions pixels, std::vector<std::string> names,
                 fs::path weights, Exif exif);
  std::string predict(engine::Engine& engine, const fs::path& picture) override;
  bool writes_files() const override { return false; }

 private:
  models::ModelOptions model_;
  data::PixelOptions pixels_;
  std::vector<std::string> names_;
  fs::path weights_;
  Exif exif_;
};

}  // namespace hearth::tasks
