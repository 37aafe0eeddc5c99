#pragma once

#include <span>
#include <string>
#include <vector>

#include "io/report.h"
#include "tasks/calibration.h"
#include "tasks/score_curves.h"

namespace hearth::tasks {

/// Max number of images of the report's worst mistakes.
inline constexpr int64_t kMaxWorst = 12;

/// Returns a fraction as text: "98.5%"; "-" if it is negative (unknown).
std::string percent_text(double fraction);

/// Returns the section with precision-recall and F1 curves: the mean over classes, and the classes with the
/// lowest average precision. `rule`: sentence on which predictions count as correct.
io::ReportSection precision_section(std::span<const ScoreCurve> curves, std::span<const std::string> names,
                                    const std::string& rule);
/// Returns the section with the reliability diagram and the numbers of predictions by confidence.
io::ReportSection calibration_section(const Calibration& calibration);

/// Returns a bar chart of the counts of classes, the largest first; of many classes the largest and the
/// smallest.
std::string class_count_chart(const std::string& title, std::span<const std::string> names,
                              std::span<const int64_t> counts);
/// Returns a bar chart of the values of classes in [0, 1], the lowest first; of many classes the lowest.
/// Negative (unknown) values are omitted.
std::string class_share_chart(const std::string& title, std::span<const std::string> names,
                              std::span<const double> shares);

/// Histogram of numbers of at least 0.
class Histogram {
 public:
  enum class Kind : uint8_t { reals, integers };
  /// `edges`: ascending; bin i has the values in [edges[i - 1], edges[i]), the last bin all larger ones.
  /// `unit`: unit of the values, such as " px".
  Histogram(std::vector<double> edges, Kind kind, std::string unit)
      : edges_(std::move(edges)), kind_(kind), unit_(std::move(unit)), counts_(edges_.size() + 1) {}
  void add(double value);
  /// Returns a bar chart of the counts.
  std::string chart(const std::string& title) const;
  const std::vector<int64_t>& counts() const { return counts_; }

 private:
  std::string range_text(size_t bin) const;

  std::vector<double> edges_;
  Kind kind_;
  std::string unit_;
  std::vector<int64_t> counts_;
};

/// Numbers of samples of a class in a confusion matrix; the ratios are -1 if their divisor is 0.
struct ClassCounts {
  int64_t num_true = 0, num_predicted = 0, num_right = 0;
  double precision() const { return ratio(num_right, num_predicted); }
  double recall() const { return ratio(num_right, num_true); }
  double f1() const { return ratio(2 * num_right, num_true + num_predicted); }

 private:
  static double ratio(int64_t part, int64_t total) {
    return total == 0 ? -1 : static_cast<double>(part) / static_cast<double>(total);
  }
};
/// Returns the counts of class `label`. `confusion`: counts [true class][predicted class] of `num_classes`.
ClassCounts counts_of_class(std::span<const int64_t> confusion, size_t num_classes, size_t label);
/// Returns the table of the most frequent confusions of two classes. `confusion`: counts
/// [true class][predicted class].
io::ReportTable frequent_confusions(std::span<const int64_t> confusion, std::span<const std::string> names);

}  // namespace hearth::tasks
