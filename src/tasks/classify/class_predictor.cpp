#include "tasks/classify/class_predictor.h"

#include <algorithm>

#include "data/images/augment.h"
#include "data/images/image.h"
#include "tasks/classify/classifier.h"

namespace hearth::tasks {

ClassPredictor::ClassPredictor(models::ModelOptions model, data::PixelOptions pixels,
                               std::vector<std::string> names, fs::path weights, Exif exif)
    : model_(std::move(model)),
      pixels_(std::move(pixels)),
      names_(std::move(names)),
      weights_(std::move(weights)),
      exif_(exif) {
  pixels_.augment = {};
}

std::string ClassPredictor::predict(engine::Engine& engine, const fs::path& image_file) {
  constexpr auto kSlack = static_cast<size_t>(engine::kInputSlack) / sizeof(float);
  const MappedFile file(image_file);
  const data::Image image = data::resize(
      data::decode_image(file.bytes(), static_cast<int>(model_.channels), image_file.native(), exif_),
      model_.image_size);
  std::vector<float> pixels(image.pixels.size() + kSlack);
  data::Augmenter{pixels_, image.size(), image.channels}.apply(0, 0, image.pixels.data(), pixels.data());
  const std::vector<int32_t> labels(1 + kSlack, 0);
  engine.evaluate({{{"images", pixels.data()}, {"labels", labels.data()}}, 1});
  const std::span<const float> probabilities = engine.output(kProbabilities);
  std::vector<std::pair<float, size_t>> ranked;
  for (size_t i = 0; i < probabilities.size(); ++i) {
    check_finite(static_cast<double>(probabilities[i]), weights_);
    ranked.emplace_back(probabilities[i], i);
  }
  std::sort(ranked.rbegin(), ranked.rend());
  std::string line = image_file.string() + ":";
  for (size_t i = 0; i < std::min<size_t>(3, ranked.size()); ++i) {
    const size_t label = ranked[i].second;
    line += fmt::format("{} {} {:.1f}%", i == 0 ? "" : ",",
                        label < names_.size() ? names_[label] : std::to_string(label),
                        100.0 * static_cast<double>(ranked[i].first));
  }
  return line;
}

}  // namespace hearth::tasks
