#include "tasks/vision_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "io/page_style.h"

namespace hearth::tasks {
namespace {

/// Max number of classes with a curve, and max number of bars of a chart.
constexpr size_t kMaxClassCurves = io::kNumCurveColors - 1, kMaxBars = 24;

/// Returns the indices of the classes with positives by ascending average precision.
std::vector<size_t> weakest_classes(std::span<const ScoreCurve> curves) {
  std::vector<size_t> order;
  for (size_t i = 0; i < curves.size(); ++i)
    if (curves[i].num_positives > 0) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return curves[i].average_precision; });
  return order;
}

/// Returns a curve over 0, 0.01 ... 1.
io::UnitCurve curve_of(const std::string& name, size_t color, const std::vector<double>& values) {
  io::UnitCurve curve{.name = name, .color = io::curve_color(color), .points = {}};
  for (size_t i = 0; i < values.size(); ++i)
    curve.points.emplace_back(static_cast<double>(i) / static_cast<double>(values.size() - 1), values[i]);
  return curve;
}

}  // namespace

std::string percent_text(double fraction) {
  return fraction < 0 ? "-" : fmt::format("{:.1f}%", 100 * fraction);
}

io::ReportSection precision_section(std::span<const ScoreCurve> curves, std::span<const std::string> names,
                                    const std::string& rule) {
  const ScoreCurve mean = mean_of(curves);
  if (mean.num_positives == 0) return {};
  const size_t best = static_cast<size_t>(std::ranges::max_element(mean.f1) - mean.f1.begin());
  const double threshold = static_cast<double>(best) / (kCurvePoints - 1);
  std::vector<size_t> shown = weakest_classes(curves);
  const bool shows_all = shown.size() <= kMaxClassCurves;
  shown.resize(std::min(shown.size(), kMaxClassCurves));
  std::ranges::sort(shown);
  std::vector<io::UnitCurve> precision, f1;
  for (size_t i = 0; i < shown.size(); ++i) {
    const ScoreCurve& one = curves[shown[i]];
    precision.push_back(curve_of(fmt::format("{} {}", names[shown[i]], percent_text(one.average_precision)),
                                 i + 1, one.precision_at_recall));
    f1.push_back(curve_of(names[shown[i]], i + 1, one.f1));
  }
  const std::string summary = fmt::format("mean of classes {}", percent_text(mean.average_precision));
  precision.push_back(curve_of(summary, 0, mean.precision_at_recall));
  f1.push_back(curve_of("mean of classes", 0, mean.f1));
  precision.back().style = f1.back().style = io::UnitCurve::Style::strong;
  const std::string best_text =
      fmt::format("The mean F1 is highest, {:.3f}, at a threshold of {:.2f}.", mean.f1[best], threshold);
  return {.title = "Precision, recall and F1",
          .note = fmt::format("{} {}{}", rule, best_text,
                              shows_all ? "" : " The classes with the lowest average precision are shown."),
          .charts = {io::unit_chart("Precision and recall", "recall", "precision", precision,
                                    "Average precision: " + summary),
                     io::unit_chart("F1 by score threshold", "score threshold", "F1", f1, best_text)}};
}

io::ReportSection calibration_section(const Calibration& calibration) {
  const io::UnitCurve accuracy{.name = "accuracy of a bin",
                               .color = io::curve_color(0),
                               .points = calibration.points(),
                               .style = io::UnitCurve::Style::dots};
  const io::UnitCurve ideal{.name = "perfect calibration",
                            .color = io::curve_color(8),
                            .points = {{0, 0}, {1, 1}},
                            .style = io::UnitCurve::Style::guide};
  const std::string error =
      fmt::format("Expected calibration error (ECE) {:.2f}%", 100 * calibration.expected_error());
  std::vector<io::Bar> bars;
  for (size_t i = 0; i < Calibration::kNumBins; ++i) {
    const Calibration::Bin& bin = calibration.bins().at(i);
    const auto edge = [](size_t at) { return 100 * static_cast<double>(at) / Calibration::kNumBins; };
    if (bin.count > 0)
      bars.push_back({fmt::format("{:.0f} to {:.0f}%", edge(i), edge(i + 1)), static_cast<double>(bin.count),
                      fmt::format("{}, {} right", bin.count, bin.num_right)});
  }
  return {.title = "Calibration",
          .note = error + ", over 15 bins of confidence. Points below the diagonal are overconfident.",
          .charts = {io::unit_chart("Reliability", "confidence", "accuracy", {ideal, accuracy}, error),
                     io::bar_chart("Predictions by confidence", io::curve_color(0), bars)}};
}

std::string class_count_chart(const std::string& title, std::span<const std::string> names,
                              std::span<const int64_t> counts) {
  std::vector<size_t> order(counts.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::ranges::greater(), [&](size_t i) { return counts[i]; });
  std::string note;
  if (order.size() > kMaxBars) {
    order.erase(order.begin() + kMaxBars / 2, order.end() - kMaxBars / 2);
    note = fmt::format(" (largest and smallest of {})", counts.size());
  }
  std::vector<io::Bar> bars;
  for (const size_t i : order)
    bars.push_back({names[i], static_cast<double>(counts[i]), std::to_string(counts[i])});
  return io::bar_chart(title + note, io::curve_color(0), bars);
}

std::string class_share_chart(const std::string& title, std::span<const std::string> names,
                              std::span<const double> shares) {
  std::vector<size_t> order;
  for (size_t i = 0; i < shares.size(); ++i)
    if (shares[i] >= 0) order.push_back(i);
  std::ranges::stable_sort(order, {}, [&](size_t i) { return shares[i]; });
  std::string note;
  if (order.size() > kMaxBars) {
    note = fmt::format(" (lowest of {})", order.size());
    order.erase(order.begin() + kMaxBars, order.end());
  }
  std::vector<io::Bar> bars;
  for (const size_t i : order) bars.push_back({names[i], shares[i], percent_text(shares[i])});
  return io::bar_chart(title + note, io::curve_color(0), bars);
}

void Histogram::add(double value) {
  ++counts_[static_cast<size_t>(std::ranges::upper_bound(edges_, value) - edges_.begin())];
}

std::string Histogram::range_text(size_t bin) const {
  const double first = bin == 0 ? 0 : edges_[bin - 1];
  if (bin == edges_.size()) return fmt::format("{:g}{} or more", first, unit_);
  const double end = edges_[bin];
  if (kind_ == Kind::integers)
    return end - first == 1 ? fmt::format("{:g}{}", first, unit_)
                            : fmt::format("{:g} to {:g}{}", first, end - 1, unit_);
  return fmt::format("{:g} to {:g}{}", first, end, unit_);
}

std::string Histogram::chart(const std::string& title) const {
  std::vector<io::Bar> bars;
  for (size_t i = 0; i < counts_.size(); ++i)
    bars.push_back({range_text(i), static_cast<double>(counts_[i]), std::to_string(counts_[i])});
  return io::bar_chart(title, io::curve_color(0), bars);
}

ClassCounts counts_of_class(std::span<const int64_t> confusion, size_t num_classes, size_t label) {
  ClassCounts counts{.num_right = confusion[label * num_classes + label]};
  for (size_t i = 0; i < num_classes; ++i) {
    counts.num_true += confusion[label * num_classes + i];
    counts.num_predicted += confusion[i * num_classes + label];
  }
  return counts;
}

io::ReportTable frequent_confusions(std::span<const int64_t> confusion, std::span<const std::string> names) {
  constexpr size_t kMaxPairs = 10;
  const size_t n = names.size();
  std::vector<size_t> pairs;
  for (size_t i = 0; i < confusion.size(); ++i)
    if (i / n != i % n && confusion[i] > 0) pairs.push_back(i);
  std::ranges::stable_sort(pairs, std::ranges::greater(), [&](size_t i) { return confusion[i]; });
  pairs.resize(std::min(pairs.size(), kMaxPairs));
  io::ReportTable table{.title = "Frequent confusions",
                        .header = {"true", "predicted", "count", "share of the true class"},
                        .rows = {}};
  for (const size_t pair : pairs) {
    const std::span<const int64_t> row = confusion.subspan(pair / n * n, n);
    const auto total = static_cast<double>(std::accumulate(row.begin(), row.end(), int64_t{0}));
    table.rows.push_back({names[pair / n], names[pair % n], std::to_string(confusion[pair]),
                          percent_text(static_cast<double>(confusion[pair]) / total)});
  }
  return table;
}

}  // namespace hearth::tasks
