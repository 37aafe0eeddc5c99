#include "tasks/score_curves.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <utility>

namespace hearth::tasks {
namespace {

double ratio(int64_t part, int64_t total) { return static_cast<double>(part) / static_cast<double>(total); }

/// Adds `values` divided by `count` to `sum`.
void add_share(std::vector<double>& sum, const std::vector<double>& values, double count) {
  sum.resize(values.size());
  for (size_t i = 0; i < values.size(); ++i) sum[i] += values[i] / count;
}

}  // namespace

size_t threshold_index(double score, size_t count) {
  const auto last = static_cast<double>(count - 1);
  auto index = static_cast<size_t>(std::clamp(score, 0.0, 1.0) * last);
  // Corrects the rounding of the product.
  if (index + 1 < count && static_cast<double>(index + 1) / last <= score) ++index;
  return index;
}

ScoreCurve mean_of(std::span<const ScoreCurve> curves) {
  const auto has_positives = [](const ScoreCurve& one) { return one.num_positives > 0; };
  const auto count = static_cast<double>(std::ranges::count_if(curves, has_positives));
  ScoreCurve mean;
  for (const ScoreCurve& one : curves) {
    if (!has_positives(one)) continue;
    mean.average_precision = std::max(0.0, mean.average_precision) + one.average_precision / count;
    mean.num_positives += one.num_positives;
    add_share(mean.precision_at_recall, one.precision_at_recall, count);
    add_share(mean.f1, one.f1, count);
  }
  return mean;
}

ClassScores::ClassScores(int64_t num_samples, int64_t num_classes)
    : num_classes_(static_cast<size_t>(num_classes)) {
  if (num_samples * num_classes <= kMaxExactScores) {
    scores_.reserve(static_cast<size_t>(num_samples * num_classes));
    return;
  }
  num_bins_ = num_classes <= 4096 ? 1001 : kCurvePoints;
  bins_.resize(num_classes_ * num_bins_);
  for (size_t i = 0; i < bins_.size(); ++i)
    bins_[i].score = static_cast<double>(i % num_bins_) / static_cast<double>(num_bins_ - 1);
}

void ClassScores::add(std::span<const float> probabilities, int64_t truth) {
  if (is_exact()) truths_.push_back(truth);
  for (size_t label = 0; label < num_classes_; ++label) {
    const float score = std::isnan(probabilities[label]) ? 0 : probabilities[label];
    if (is_exact()) {
      scores_.push_back(score);
      continue;
    }
    Group& bin = bins_[label * num_bins_ + threshold_index(static_cast<double>(score), num_bins_)];
    ++(std::cmp_equal(label, truth) ? bin.hits : bin.misses);
  }
}

std::vector<ClassScores::Group> ClassScores::groups_of(size_t label) const {
  std::vector<Group> groups;
  if (!is_exact()) {
    const auto first = bins_.begin() + static_cast<std::ptrdiff_t>(label * num_bins_);
    groups.assign(first, first + static_cast<std::ptrdiff_t>(num_bins_));
    std::ranges::reverse(groups);
    return groups;
  }
  for (size_t i = 0; i < truths_.size(); ++i) {
    const bool is_hit = std::cmp_equal(label, truths_[i]);
    groups.push_back(
        {static_cast<double>(scores_[i * num_classes_ + label]), is_hit ? 1 : 0, is_hit ? 0 : 1});
  }
  std::ranges::sort(groups, std::ranges::greater(), &Group::score);
  size_t last = 0;
  for (size_t i = 1; i < groups.size(); ++i) {
    if (groups[i].score != groups[last].score) {
      groups[++last] = groups[i];
      continue;
    }
    groups[last].hits += groups[i].hits;
    groups[last].misses += groups[i].misses;
  }
  if (!groups.empty()) groups.resize(last + 1);
  return groups;
}

ScoreCurve ClassScores::trace(std::span<const Group> groups) {
  ScoreCurve curve;
  for (const Group& group : groups) curve.num_positives += group.hits;
  if (curve.num_positives == 0) return curve;
  curve.average_precision = 0;
  curve.precision_at_recall.resize(kCurvePoints);
  curve.f1.resize(kCurvePoints);
  int64_t hits = 0, found = 0;
  size_t next = kCurvePoints;  // Thresholds from this index on have their F1.
  const auto f1_above = [&](double score) {
    for (; next > 0 && static_cast<double>(next - 1) / (kCurvePoints - 1) > score; --next)
      curve.f1[next - 1] = 2 * ratio(hits, found + curve.num_positives);
  };
  for (const Group& group : groups) {
    f1_above(group.score);
    hits += group.hits;
    found += group.hits + group.misses;
    if (found == 0) continue;
    const double precision = ratio(hits, found);
    curve.average_precision += precision * ratio(group.hits, curve.num_positives);
    double& best = curve.precision_at_recall[threshold_index(ratio(hits, curve.num_positives), kCurvePoints)];
    best = std::max(best, precision);
  }
  f1_above(-1);
  for (size_t i = kCurvePoints - 1; i > 0; --i)
    curve.precision_at_recall[i - 1] =
        std::max(curve.precision_at_recall[i - 1], curve.precision_at_recall[i]);
  return curve;
}

std::vector<ScoreCurve> ClassScores::trace() const {
  std::vector<ScoreCurve> curves;
  for (size_t label = 0; label < num_classes_; ++label) curves.push_back(trace(groups_of(label)));
  return curves;
}

}  // namespace hearth::tasks
