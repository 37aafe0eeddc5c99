#pragma once

#include "tasks/predictor.h"
#include "tasks/segment/mask_predictor.h"

namespace hearth::tasks {

/// Writes three PNG files for each image into a folder: NAME.png, the predicted classes as palette indices;
/// NAME_color.png, the classes in their colors; NAME_overlay.png, the colors over the image.
class MaskWriter : public Predictor {
 public:
  MaskWriter(MaskInput input, std::vector<data::MaskClass> classes, fs::path folder);
  ImagePrediction analyze(engine::Engine& engine, std::span<const std::byte> image,
                          std::string_view name) override;
  std::string predict(engine::Engine& engine, const fs::path& image) override;

 private:
  std::vector<PredictedClass> classes_in(const data::Image& mask) const;

  MaskInput input_;
  std::vector<data::MaskClass> classes_;
  std::vector<std::array<uint8_t, 3>> palette_;
  fs::path folder_;
};

}  // namespace hearth::tasks
