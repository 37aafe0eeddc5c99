#pragma once

#include "data/images/image.h"
#include "data/loader_options.h"
#include "models/model.h"
#include "tasks/predictor.h"

namespace hearth::tasks {

/// Predictor that reports the three most probable classes of an image with their probabilities.
class ClassPredictor : public Predictor {
 public:
  /// Classes without a name in `names` are printed as numbers. `weights`: path of the weights, for messages.
  ClassPredictor(models::ModelOptions model, data::PixelOptions pixels, std::vector<std::string> names,
                 fs::path weights, Exif exif);
  ImagePrediction analyze(engine::Engine& engine, std::span<const std::byte> image,
                          std::string_view name) override;
  std::string predict(engine::Engine& engine, const fs::path& image) override;
  bool writes_files() const override { return false; }

 private:
  models::ModelOptions model_;
  data::PixelOptions pixels_;
  std::vector<std::string> names_;
  fs::path weights_;
  Exif exif_;
};

}  // namespace hearth::tasks
