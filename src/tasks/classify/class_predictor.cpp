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

ImagePrediction ClassPredictor::analyze(engine::Engine& engine, std::span<const std::byte> bytes,
                                        std::string_view name) {
  constexpr auto kSlack = static_cast<size_t>(engine::kInputSlack) / sizeof(float);
  const data::Image image = data::resize(
      data::decode_image(bytes, static_cast<int>(model_.channels), name, exif_), model_.image_size);
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
  ImagePrediction prediction;
  for (const auto& [probability, label] : ranked) {
    prediction.classes.push_back({.name = label < names_.size() ? names_[label] : std::to_string(label),
                                  .share = static_cast<double>(probability)});
  }
  return prediction;
}

std::string ClassPredictor::predict(engine::Engine& engine, const fs::path& image_file) {
  const MappedFile file(image_file);
  const ImagePrediction prediction = analyze(engine, file.bytes(), image_file.native());
  std::string line = image_file.string() + ":";
  for (size_t i = 0; i < std::min<size_t>(3, prediction.classes.size()); ++i) {
    const auto& [name, share] = prediction.classes[i];
    line += fmt::format("{} {} {:.1f}%", i == 0 ? "" : ",", name, 100.0 * share);
  }
  return line;
}

}  // namespace hearth::tasks
