#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "nn/int8.h"

namespace hearth::infer {

/// Histogram of the values of an activation, from which the range of its quantization to uint8 is chosen.
class ActivationHistogram {
 public:
  /// Throws a UserError if a value is infinite or NaN.
  void add(std::span<const float> values);
  nn::ActivationRange min_max() const { return {.low = low_, .high = high_}; }
  /// Returns the range for which quantization with GroupFormat::int8_affine has the smallest mean squared
  /// error. The range is min_max() or narrower; a narrower range clips rare large values.
  nn::ActivationRange best_range() const;

 private:
  /// Doubles the bin width until the bins cover `largest`: merges pairs of bins. The first call sets the
  /// width.
  void widen(double largest);
  /// Returns the sum of squared quantization errors of all counted values.
  double squared_error(nn::ActivationRange range) const;

  static constexpr int64_t kHalf = 2048;  ///< number of bins on each side of zero
  /// Counts of values other than zero: bin i counts the values in [(i - kHalf) width_, (i + 1 - kHalf)
  /// width_).
  std::vector<int64_t> counts_ = std::vector<int64_t>(2 * kHalf);
  double width_ = 0;
  float low_ = 0, high_ = 0;
};

}  // namespace hearth::infer
