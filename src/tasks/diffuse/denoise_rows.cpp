#include "tasks/diffuse/denoise_rows.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"

namespace hearth::tasks {
namespace {

constexpr int64_t kLongestSide = 1 << 20;
/// Numbers of the Philox streams for the random choices of a row.
enum Stream : uint32_t { kLevel, kNoise, kDropout };
/// Philox key of evaluation rows, a constant, so that every evaluation uses the same noise.
constexpr uint64_t kFixedKey = 0x6E6F697365;

}  // namespace

data::ArrayFormats DenoiseFormat::arrays(Extent latents) const {
  constexpr int64_t kFloat = sizeof(float);
  const int64_t values = model.channels * latents.num_pixels() * kFloat;
  data::ArrayFormats made = {{{"tokens", values}, {"target", values}, {"settings", sizeof(DenoiseSettings)}}};
  if (has_labels()) {
    made[DenoiseArray::label] = {"labels", sizeof(int32_t)};
  } else {
    made[DenoiseArray::text] = {"text", text_size() * kFloat};
    if (pooled_size() > 0) made[DenoiseArray::pooled] = {"pooled", pooled_size() * kFloat};
  }
  return made;
}

int64_t length_of(Extent latents) { return latents.height * kLongestSide + latents.width; }
Extent extent_of(int64_t length) { return {length / kLongestSide, length % kLongestSide}; }

DenoiseRows::DenoiseRows(const data::LatentSource& images, DenoiseFormat format, const Noising& noising,
                         double dropout)
    : images_(images),
      format_(std::move(format)),
      noising_(noising),
      dropout_(dropout),
      num_images_(images.size()),
      largest_(largest_extent(images)) {}

DenoiseRows::DenoiseRows(const data::LatentSource& images, DenoiseFormat format, const Noising& noising,
                         std::vector<double> levels, int64_t num_images)
    : images_(images),
      format_(std::move(format)),
      noising_(noising),
      levels_(std::move(levels)),
      num_images_(num_images),
      largest_(largest_extent(images)) {
  HEARTH_CHECK(!levels_.empty());
}

int64_t DenoiseRows::num_rows() const { return num_images_ * std::max<int64_t>(1, std::ssize(levels_)); }

data::ArrayFormats DenoiseRows::formats(int64_t length) const {
  return format_.arrays(length > 0 ? extent_of(length) : largest_);
}

int64_t DenoiseRows::scratch_bytes() const {
  return 2 * format_.model.channels * largest_.num_pixels() * static_cast<int64_t>(sizeof(float));
}

void DenoiseRows::make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const {
  const bool is_fixed = !levels_.empty();
  const int64_t image = is_fixed ? row.index / std::ssize(levels_) : row.index;
  const uint64_t key = is_fixed ? kFixedKey : row.key;
  const auto index = static_cast<uint64_t>(row.index);
  const Extent size = images_.extent(image);
  const auto count = static_cast<size_t>(format_.model.channels * size.num_pixels());
  const std::span latents(reinterpret_cast<float*>(row.scratch), count);
  const std::span clean(latents.data() + count, count);
  images_.read(image, key, latents);
  data::to_tokens(latents, format_.model.channels, size, format_.model.patch, clean);

  PhiloxSequence levels(key, index, kLevel), noise(key, index, kNoise), dropout(key, index, kDropout);
  const int64_t num_tokens = size.num_pixels() / (format_.model.patch * format_.model.patch);
  const NoiseCoefficients at =
      noising_.at(is_fixed ? levels_[static_cast<size_t>(row.index % std::ssize(levels_))]
                           : noising_.draw(levels, num_tokens));
  const auto floats = [&](size_t array) { return reinterpret_cast<float*>(arrays[array]); };
  float* tokens = floats(DenoiseArray::tokens);
  float* target = floats(DenoiseArray::target);
  for (size_t i = 0; i < count; ++i) {
    const float x = clean[i], n = noise.normal();
    tokens[i] = static_cast<float>(at.signal) * x + static_cast<float>(at.noise) * n;
    target[i] = static_cast<float>(at.target_signal) * x + static_cast<float>(at.target_noise) * n;
  }
  const DenoiseSettings settings{.time = static_cast<float>(at.time),
                                 .weight = static_cast<float>(at.weight * images_.weight(image))};
  std::memcpy(arrays[DenoiseArray::settings], &settings, sizeof settings);
  const bool is_dropped = dropout.uniform() < dropout_;
  if (format_.has_labels()) {
    *reinterpret_cast<int32_t*>(arrays[DenoiseArray::label]) =
        is_dropped ? static_cast<int32_t>(format_.model.num_classes) : images_.label(image);
    return;
  }
  images_.text(is_dropped ? -1 : image,
               {floats(DenoiseArray::text), static_cast<size_t>(format_.text_size())},
               {floats(DenoiseArray::pooled), static_cast<size_t>(format_.pooled_size())});
}

}  // namespace hearth::tasks
