#include "infer/activation_histogram.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/group_format.h"

namespace hearth::infer {

void ActivationHistogram::widen(double largest) {
  // The factor is above 1, because the last bin does not include its upper end.
  if (width_ == 0) width_ = largest * (1 + 1e-6) / static_cast<double>(kHalf);
  while (largest >= width_ * static_cast<double>(kHalf)) {
    std::vector<int64_t> wider(counts_.size());
    for (int64_t i = 0; i < 2 * kHalf; ++i)
      wider[static_cast<size_t>((i + kHalf) / 2)] += counts_[static_cast<size_t>(i)];
    counts_ = std::move(wider);
    width_ *= 2;
  }
}

void ActivationHistogram::add(std::span<const float> values) {
  if (!std::ranges::all_of(values, [](float value) { return std::isfinite(value); }))
    user_error("an activation is infinite or NaN on the calibration images; use weights of an earlier step");
  if (values.empty()) return;
  const auto [low, high] = std::ranges::minmax(values);
  low_ = std::min(low_, low);
  high_ = std::max(high_, high);
  const double largest = std::max(std::fabs(static_cast<double>(low)), std::fabs(static_cast<double>(high)));
  if (largest == 0) return;
  widen(largest);
  for (const float value : values) {
    if (value == 0) continue;
    const auto bin = static_cast<int64_t>(std::floor(static_cast<double>(value) / width_));
    ++counts_[static_cast<size_t>(std::clamp(bin + kHalf, int64_t{0}, 2 * kHalf - 1))];
  }
}

double ActivationHistogram::squared_error(nn::ActivationRange range) const {
  constexpr GroupFormat kFormat = GroupFormat::int8_affine;
  const GroupScale grid = group_scale(kFormat, range.low, range.high);
  double error = 0;
  for (int64_t i = 0; i < 2 * kHalf; ++i) {
    const int64_t count = counts_[static_cast<size_t>(i)];
    if (count == 0) continue;
    const auto center = static_cast<float>((static_cast<double>(i - kHalf) + 0.5) * width_);
    const double gap = static_cast<double>(group_value(group_code(kFormat, center, grid), grid) - center);
    error += static_cast<double>(count) * gap * gap;
  }
  return error;
}

nn::ActivationRange ActivationHistogram::best_range() const {
  // Candidates for each end of the range: the end times parts / kParts, with parts in [kMinParts, kParts).
  constexpr int kParts = 64, kMinParts = 12;
  nn::ActivationRange best = min_max();
  double smallest = squared_error(best);
  for (float nn::ActivationRange::*const end : {&nn::ActivationRange::high, &nn::ActivationRange::low}) {
    nn::ActivationRange range = best;
    const float full = range.*end;
    for (int parts = kParts - 1; parts >= kMinParts; --parts) {
      range.*end = full * static_cast<float>(parts) / kParts;
      const double error = squared_error(range);
      if (error >= smallest) continue;
      smallest = error;
      best = range;
    }
  }
  return best;
}

}  // namespace hearth::infer
