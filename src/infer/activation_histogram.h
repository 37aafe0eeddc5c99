#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/int8.h"

namespace hearth::infer {

/// Distribution of the values of an activation, from which the range of its uint8 grid is chosen.
class ActivationHistogram {
 public:
  /// Throws a UserError if a value is infinite or NaN.
  void add(std::span<const float> values);
  nn::ActivationRange min_max() const { return {.low = low_, .high = high_}; }
  /// Returns the range whose grid (GroupFormat::int8_affine) rounds the values with the smallest mean squared
  /// error. It is min_max() or narrower: rare large values are then clipped.
  nn::ActivationRange best_range() const;

 private:
  void widen(double largest);
  double squared_error(nn::ActivationRange range) const;

  static constexpr int64_t kHalf = 2048;  ///< number of bins on each side of zero
  /// Counts of values other than zero: bin i has those in [(i - kHalf) width_, (i + 1 - kHalf) width_).
  std::vector<int64_t> counts_ = std::vector<int64_t>(2 * kHalf);
  double width_ = 0;
  float low_ = 0, high_ = 0;
};

}  // namespace hearth::infer
