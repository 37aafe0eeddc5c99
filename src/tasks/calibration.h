#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace hearth::tasks {

/// Compares the confidence of predictions with their accuracy, in 15 equal bins of confidence (Guo et al.
/// 2017, arXiv 1706.04599). Bin i has the confidences in (i/15, (i+1)/15]; the first one has 0 too.
class Calibration {
 public:
  static constexpr size_t kNumBins = 15;
  struct Bin {
    int64_t count = 0, num_right = 0;
    double confidence_sum = 0;
  };

  /// Adds a prediction. `confidence`: probability of the predicted class; NaN counts as 0.
  void add(double confidence, bool is_right);
  /// Returns the expected calibration error: the mean over predictions of |accuracy - mean confidence| of
  /// their bin; 0 without predictions.
  double expected_error() const;
  /// Returns {mean confidence, accuracy} of each bin that has predictions.
  std::vector<std::pair<double, double>> points() const;
  const std::array<Bin, kNumBins>& bins() const { return bins_; }

 private:
  std::array<Bin, kNumBins> bins_{};
};

}  // namespace hearth::tasks
