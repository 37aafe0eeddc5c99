#include "data/masks/masks.h"

#include <algorithm>

#include "base/error.h"

namespace hearth::data {
namespace {

void count(const Image& mask, std::vector<int64_t>& pixels, int64_t& unlabeled) {
  std::array<int64_t, 256> counts = {};
  for (const uint8_t pixel : mask.pixels) ++counts[pixel];
  for (size_t i = 0; i < pixels.size(); ++i) pixels[i] += counts[i];
  unlabeled += counts[kUnlabeled];
}

}  // namespace

std::array<uint8_t, 3> palette_color(int64_t index) {
  std::array<uint8_t, 3> color = {};
  for (int bit = 7; index != 0; --bit, index >>= 3) {
    for (size_t c = 0; c < 3; ++c) color[c] = static_cast<uint8_t>(color[c] | ((index >> c & 1) << bit));
  }
  return color;
}

MaskCheck check_masks(const MaskedImages& images) {
  MaskCheck check{.classes = images.classes(), .num_images = images.size()};
  check.pixels.resize(check.classes.size());
  Image image, mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    try {
      images.read(i, image, mask);
      count(mask, check.pixels, check.unlabeled);
    } catch (const UserError& error) {
      check.faults.emplace_back(error.what());
    }
  }
  return check;
}

std::vector<float> median_frequency_weights(const MaskedImages& images) {
  const size_t num_classes = images.classes().size();
  std::vector<double> pixels(num_classes), of_images(num_classes);
  Image mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    images.read_mask(i, mask);
    std::vector<int64_t> here(num_classes);
    int64_t unlabeled = 0;
    count(mask, here, unlabeled);
    const auto labeled = static_cast<double>(mask.size().num_pixels() - unlabeled);
    for (size_t c = 0; c < num_classes; ++c) {
      pixels[c] += static_cast<double>(here[c]);
      if (here[c] > 0) of_images[c] += labeled;
    }
  }
  std::vector<double> frequencies;
  for (size_t c = 0; c < num_classes; ++c)
    if (pixels[c] > 0) frequencies.push_back(pixels[c] / of_images[c]);
  std::ranges::sort(frequencies);
  std::vector<float> weights(num_classes);
  if (frequencies.empty()) return weights;
  const double median = (frequencies[frequencies.size() / 2] + frequencies[(frequencies.size() - 1) / 2]) / 2;
  for (size_t c = 0; c < num_classes; ++c)
    if (pixels[c] > 0) weights[c] = static_cast<float>(median * of_images[c] / pixels[c]);
  return weights;
}

std::vector<std::vector<int32_t>> classes_of_masks(const MaskedImages& images) {
  std::vector<std::vector<int32_t>> made(static_cast<size_t>(images.size()));
  Image mask;
  for (int64_t i = 0; i < images.size(); ++i) {
    images.read_mask(i, mask);
    std::vector<int64_t> pixels(images.classes().size());
    int64_t unlabeled = 0;
    count(mask, pixels, unlabeled);
    for (size_t c = 0; c < pixels.size(); ++c)
      if (pixels[c] > 0) made[static_cast<size_t>(i)].push_back(static_cast<int32_t>(c));
  }
  return made;
}

Image colorize(const Image& mask, const std::vector<MaskClass>& classes) {
  Image out{.height = mask.height, .width = mask.width, .channels = 3};
  out.pixels.reserve(mask.pixels.size() * 3);
  for (const uint8_t pixel : mask.pixels) {
    const std::array<uint8_t, 3> color =
        pixel < classes.size() ? classes[pixel].color : std::array<uint8_t, 3>{255, 255, 255};
    out.pixels.insert(out.pixels.end(), color.begin(), color.end());
  }
  return out;
}

Image overlay(const Image& image, const Image& mask, const std::vector<MaskClass>& classes) {
  HEARTH_CHECK(image.size() == mask.size() && image.channels == 3);
  Image out = image;
  for (size_t i = 0; i < mask.pixels.size(); ++i) {
    const uint8_t label = mask.pixels[i];
    if (label == 0 || label >= classes.size()) continue;
    for (size_t c = 0; c < 3; ++c) {
      uint8_t& value = out.pixels[3 * i + c];
      value = static_cast<uint8_t>((value + classes[label].color[c] + 1) / 2);
    }
  }
  return out;
}

}  // namespace hearth::data
