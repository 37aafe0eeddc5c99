#include "data/masks/mask_rows.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/philox.h"
#include "data/images/augment.h"

namespace hearth::data {
namespace {

constexpr int64_t kChannels = 3;

/// Draws the random offset of a crop along one axis. `whole`: side of the image; `part`: side of the crop. If
/// the crop is larger, the offset is negative and the crop contains the image.
int64_t random_corner(PhiloxSequence& random, int64_t whole, int64_t part) {
  const int64_t room = std::abs(whole - part);
  const auto at = static_cast<int64_t>(random.below(static_cast<uint32_t>(room + 1)));
  return whole >= part ? at : -at;
}

/// Returns the pixel value that normalization maps to about 0: the mean.
uint8_t neutral(const std::vector<float>& mean, size_t channel) {
  const float value = mean[std::min(channel, mean.size() - 1)] * 255;
  return static_cast<uint8_t>(std::lround(std::clamp(value, 0.0F, 255.0F)));
}

}  // namespace

void place_image(const Image& scaled, const MaskPlacement& placement, Extent size,
                 const std::vector<float>& mean, uint8_t* out) {
  const std::array<uint8_t, kChannels> outside = {neutral(mean, 0), neutral(mean, 1), neutral(mean, 2)};
  for (int64_t y = 0; y < size.height; ++y) {
    const int64_t from_y = y + placement.top;
    const bool row_inside = from_y >= 0 && from_y < scaled.height;
    for (int64_t x = 0; x < size.width; ++x, out += kChannels) {
      const int64_t from_x = (placement.flip ? size.width - 1 - x : x) + placement.left;
      const bool inside = row_inside && from_x >= 0 && from_x < scaled.width;
      const uint8_t* from =
          inside ? &scaled.pixels[static_cast<size_t>((from_y * scaled.width + from_x) * kChannels)]
                 : outside.data();
      std::copy_n(from, kChannels, out);
    }
  }
}

void place_mask(const Image& stored, const MaskPlacement& placement, Extent size, uint8_t* out) {
  const Extent scaled = placement.scaled;
  for (int64_t y = 0; y < size.height; ++y) {
    const int64_t at_y = y + placement.top;
    // Index of the row of `stored` that contains the center of scaled row at_y.
    const int64_t from_y = (2 * at_y + 1) * stored.height / (2 * scaled.height);
    for (int64_t x = 0; x < size.width; ++x) {
      const int64_t at_x = (placement.flip ? size.width - 1 - x : x) + placement.left;
      const bool inside = at_y >= 0 && at_y < scaled.height && at_x >= 0 && at_x < scaled.width;
      const int64_t from_x = (2 * at_x + 1) * stored.width / (2 * scaled.width);
      *out++ = inside ? stored.pixels[static_cast<size_t>(from_y * stored.width + from_x)] : kUnlabeled;
    }
  }
}

Image resize_mask(const Image& mask, Extent size) {
  Image made{.height = size.height, .width = size.width, .channels = 1};
  made.pixels.resize(static_cast<size_t>(size.num_pixels()));
  place_mask(mask, {.scaled = size}, size, made.pixels.data());
  return made;
}

MaskRows::MaskRows(const MaskedImages& images, MaskRowOptions options)
    : images_(images), options_(std::move(options)), flips_(options_.pixels.augment.flip) {
  options_.pixels.augment.crop_padding = 0;
  options_.pixels.augment.flip = false;
  check_pixels(options_.pixels, options_.size, kChannels);
  if (!(options_.min_scale > 0 && options_.min_scale <= options_.max_scale && options_.max_scale <= 16))
    user_error("expected a random scale from above 0 to at most 16, got {} to {}", options_.min_scale,
               options_.max_scale);
}

ArrayFormats MaskRows::formats(int64_t) const {
  const int64_t pixels = options_.size.num_pixels();
  return {{{"images", pixels * kChannels * 4}, {"masks", pixels * 4}, {"weight", 4}}};
}

MaskPlacement MaskRows::place(const Row& row, Extent stored) const {
  const Extent whole = options_.resizes ? options_.size : stored;
  PhiloxSequence random(row.key, static_cast<uint64_t>(row.index), 0x5E6);
  // Log-uniform distribution: a factor and its inverse are equally likely.
  const double scale = std::exp(random.uniform(static_cast<float>(std::log(options_.min_scale)),
                                               static_cast<float>(std::log(options_.max_scale))));
  const auto scaled = [scale](int64_t side) {
    return std::max<int64_t>(1, std::llround(static_cast<double>(side) * scale));
  };
  MaskPlacement made{.scaled = {scaled(whole.height), scaled(whole.width)}};
  made.top = random_corner(random, made.scaled.height, options_.size.height);
  made.left = random_corner(random, made.scaled.width, options_.size.width);
  made.flip = flips_ && random.below(2) == 1;
  return made;
}

void MaskRows::make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const {
  thread_local Image image, mask;
  thread_local ImageBuffers buffers;
  thread_local std::vector<uint8_t> pixels, labels;
  images_.read(row.index, image, mask);
  const MaskPlacement placement = place(row, image.size());
  const Extent size = options_.size;
  pixels.resize(static_cast<size_t>(size.num_pixels() * kChannels));
  labels.resize(static_cast<size_t>(size.num_pixels()));
  place_image(resize(image, placement.scaled, buffers), placement, size, options_.pixels.mean, pixels.data());
  place_mask(mask, placement, size, labels.data());
  Augmenter{options_.pixels, size, kChannels}.apply(row.key, row.index, pixels.data(),
                                                    reinterpret_cast<float*>(arrays[0]));
  *reinterpret_cast<float*>(arrays[2]) =
      number_mask(labels, options_.class_weights, reinterpret_cast<int32_t*>(arrays[1]));
}

float number_mask(const std::vector<uint8_t>& labels, const std::vector<float>& class_weights,
                  int32_t* numbers) {
  double weight = 0;
  for (size_t i = 0; i < labels.size(); ++i) {
    const bool counts = labels[i] != kUnlabeled;
    numbers[i] = counts ? labels[i] : -1;
    if (counts) weight += class_weights.empty() ? 1 : static_cast<double>(class_weights.at(labels[i]));
  }
  return static_cast<float>(weight);
}

}  // namespace hearth::data
