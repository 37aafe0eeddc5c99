#include "tasks/calibration.h"

#include <algorithm>
#include <cmath>

namespace hearth::tasks {

void Calibration::add(double confidence, bool is_right) {
  const double clipped = std::isnan(confidence) ? 0 : std::clamp(confidence, 0.0, 1.0);
  const double upper = std::ceil(clipped * kNumBins);
  Bin& bin = bins_.at(upper < 1 ? 0 : static_cast<size_t>(upper) - 1);
  ++bin.count;
  bin.num_right += is_right ? 1 : 0;
  bin.confidence_sum += clipped;
}

double Calibration::expected_error() const {
  double error = 0;
  int64_t count = 0;
  for (const Bin& bin : bins_) {
    error += std::abs(static_cast<double>(bin.num_right) - bin.confidence_sum);
    count += bin.count;
  }
  return count == 0 ? 0 : error / static_cast<double>(count);
}

std::vector<std::pair<double, double>> Calibration::points() const {
  std::vector<std::pair<double, double>> points;
  for (const Bin& bin : bins_) {
    const auto count = static_cast<double>(bin.count);
    if (bin.count > 0)
      points.emplace_back(bin.confidence_sum / count, static_cast<double>(bin.num_right) / count);
  }
  return points;
}

}  // namespace hearth::tasks
