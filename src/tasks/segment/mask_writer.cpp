#include "tasks/segment/mask_writer.h"

#include <algorithm>

namespace hearth::tasks {
namespace {

/// Max number of classes listed in the text about an image.
constexpr size_t kMaxListed = 4;

}  // namespace

MaskWriter::MaskWriter(MaskInput input, std::vector<data::MaskClass> classes, fs::path folder)
    : input_(std::move(input)), classes_(std::move(classes)), folder_(std::move(folder)) {
  for (const data::MaskClass& one : classes_) palette_.push_back(one.color);
  for (auto i = std::ssize(palette_); i < input_.num_classes; ++i) palette_.push_back(data::palette_color(i));
}

/// Returns the classes that occur in a mask, with their fractions of the pixels.
std::vector<PredictedClass> MaskWriter::classes_in(const data::Image& mask) const {
  std::vector<std::pair<int64_t, size_t>> counts;
  for (size_t i = 0; i < classes_.size(); ++i)
    counts.emplace_back(std::ranges::count(mask.pixels, static_cast<uint8_t>(i)), i);
  std::sort(counts.rbegin(), counts.rend());
  std::vector<PredictedClass> found;
  for (const auto& [count, label] : counts) {
    if (count == 0) break;
    found.push_back({.name = classes_[label].name,
                     .share = static_cast<double>(count) / static_cast<double>(mask.pixels.size())});
  }
  return found;
}

ImagePrediction MaskWriter::analyze(engine::Engine& engine, std::span<const std::byte> bytes,
                                    std::string_view name) {
  const data::Image image = data::decode_image(bytes, 3, name, input_.exif);
  const data::Image mask = MaskPredictor(engine, input_, 1).predict(image);
  return {.classes = classes_in(mask), .mask_png = data::encode_png(mask, palette_)};
}

std::string MaskWriter::predict(engine::Engine& engine, const fs::path& image_file) {
  make_folder(folder_);
  const MappedFile file(image_file);
  const data::Image image = data::decode_image(file.bytes(), 3, image_file.native(), input_.exif);
  const data::Image mask = MaskPredictor(engine, input_, 1).predict(image);
  const std::string stem = (folder_ / image_file.stem()).string();
  write_file_atomically(stem + ".png", data::encode_png(mask, palette_));
  write_file_atomically(stem + "_color.png", data::encode_png(data::colorize(mask, classes_)));
  write_file_atomically(stem + "_overlay.png", data::encode_png(data::overlay(image, mask, classes_)));
  const std::vector<PredictedClass> found = classes_in(mask);
  std::string line = image_file.string() + ":";
  for (size_t i = 0; i < std::min(kMaxListed, found.size()); ++i)
    line += fmt::format("{} {} {:.1f}%", i == 0 ? "" : ",", found[i].name, 100.0 * found[i].share);
  return line + fmt::format(" -> {}.png", stem);
}

}  // namespace hearth::tasks
