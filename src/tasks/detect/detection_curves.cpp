#include "tasks/detect/detection_curves.h"

#include <algorithm>
#include <array>
#include <tuple>

#include "tasks/detect/overlap.h"
#include "tasks/score_curves.h"

namespace hearth::tasks {
namespace {

constexpr double kOverlap = 0.5;

/// Numbers of correct and wrong detections of a class, by the index of the highest threshold (0, 0.01 ... 1)
/// that their score reaches; number of ground-truth boxes.
struct Counts {
  std::array<int64_t, kCurvePoints> hits{}, misses{};
  int64_t truths = 0;
};

enum class Outcome { hit, miss, ignored };

/// Matches a detection with the unmatched ground-truth box of its class with the highest IoU; with an ignored
/// box only if no other box matches.
Outcome take(const EvaluatedImage& image, const Detection& found, std::vector<bool>& matched_truths) {
  size_t best = image.truths.size();
  double best_overlap = kOverlap;
  bool on_ignored = false;
  for (size_t i = 0; i < image.truths.size(); ++i) {
    const Truth& truth = image.truths[i];
    if (truth.label != found.label || matched_truths[i]) continue;
    const double share = overlap(found, truth, truth.crowd);
    if (truth.ignored) {
      on_ignored |= share >= kOverlap;
    } else if (share >= best_overlap) {
      best_overlap = share;
      best = i;
    }
  }
  if (best == image.truths.size()) return on_ignored ? Outcome::ignored : Outcome::miss;
  matched_truths[best] = true;
  return Outcome::hit;
}

void count(const EvaluatedImage& image, std::vector<Counts>& classes) {
  for (const Truth& truth : image.truths)
    classes[static_cast<size_t>(truth.label)].truths += truth.ignored ? 0 : 1;
  std::vector<Detection> best = image.detections;
  std::ranges::stable_sort(best, std::ranges::greater(), &Detection::score);
  std::vector<bool> matched_truths(image.truths.size());
  for (const Detection& found : best) {
    const Outcome outcome = take(image, found, matched_truths);
    if (outcome == Outcome::ignored) continue;
    Counts& of = classes[static_cast<size_t>(found.label)];
    const size_t at = threshold_index(found.score, kCurvePoints);
    ++(outcome == Outcome::hit ? of.hits : of.misses).at(at);
  }
}

ConfidenceCurves::Curve make_curve(const Counts& counts) {
  ConfidenceCurves::Curve curve{std::vector<double>(kCurvePoints), std::vector<double>(kCurvePoints),
                                std::vector<double>(kCurvePoints)};
  if (counts.truths == 0) return curve;
  int64_t hits = 0, misses = 0;
  for (size_t s = kCurvePoints; s-- > 0;) {
    hits += counts.hits.at(s);
    misses += counts.misses.at(s);
    const auto right = static_cast<double>(hits);
    curve.recall[s] = right / static_cast<double>(counts.truths);
    curve.precision[s] = hits + misses == 0 ? 1 : right / static_cast<double>(hits + misses);
    curve.f1[s] = 2 * right / static_cast<double>(hits + misses + counts.truths);
  }
  return curve;
}

/// {-IoU, index of the detection, index of the ground-truth box}: sorts by descending IoU, then by index.
using Pair = std::tuple<double, size_t, size_t>;
std::vector<Pair> pairs_of(const EvaluatedImage& image, const ConfusionOptions& options) {
  std::vector<Pair> pairs;
  for (size_t d = 0; d < image.detections.size(); ++d) {
    if (!(image.detections[d].score >= options.score)) continue;
    for (size_t t = 0; t < image.truths.size(); ++t) {
      const Truth& truth = image.truths[t];
      const double share = overlap(image.detections[d], truth, truth.crowd);
      if (share > options.overlap) pairs.emplace_back(-share, d, t);
    }
  }
  std::ranges::sort(pairs);
  return pairs;
}

}  // namespace

ConfidenceCurves trace_confidence(std::span<const EvaluatedImage> images, int64_t num_classes) {
  std::vector<Counts> counts(static_cast<size_t>(num_classes));
  for (const EvaluatedImage& image : images) count(image, counts);
  ConfidenceCurves curves;
  curves.mean = make_curve({});
  double num_counted = 0;
  for (const Counts& of : counts) num_counted += of.truths > 0 ? 1 : 0;
  for (const Counts& of : counts) {
    curves.classes.push_back(make_curve(of));
    if (of.truths == 0) continue;
    for (size_t s = 0; s < kCurvePoints; ++s) {
      curves.mean.precision[s] += curves.classes.back().precision[s] / num_counted;
      curves.mean.recall[s] += curves.classes.back().recall[s] / num_counted;
      curves.mean.f1[s] += curves.classes.back().f1[s] / num_counted;
    }
  }
  const auto best = std::ranges::max_element(curves.mean.f1);
  curves.best_f1 = *best;
  curves.best_score = static_cast<double>(best - curves.mean.f1.begin()) / (kCurvePoints - 1);
  return curves;
}

ImageErrors count_errors(const EvaluatedImage& image, double min_score) {
  ImageErrors errors;
  for (const Truth& truth : image.truths) errors.num_missed += truth.ignored ? 0 : 1;
  std::vector<Detection> best = image.detections;
  std::erase_if(best, [&](const Detection& found) { return !(found.score >= min_score); });
  std::ranges::stable_sort(best, std::ranges::greater(), &Detection::score);
  std::vector<bool> matched_truths(image.truths.size());
  for (const Detection& found : best) {
    const Outcome outcome = take(image, found, matched_truths);
    if (outcome == Outcome::hit) --errors.num_missed;
    if (outcome != Outcome::miss) continue;
    ++errors.num_wrong;
    errors.error += found.score;
  }
  errors.error += static_cast<double>(errors.num_missed);
  return errors;
}

std::vector<int64_t> count_confusions(std::span<const EvaluatedImage> images, int64_t num_classes,
                                      const ConfusionOptions& options) {
  const auto background = static_cast<size_t>(num_classes), side = background + 1;
  std::vector<int64_t> counts(side * side);
  const auto count_pair = [&](size_t found, size_t truth) { ++counts[found * side + truth]; };
  for (const EvaluatedImage& image : images) {
    std::vector<bool> done(image.detections.size()), matched_truths(image.truths.size());
    const std::vector<Pair> pairs = pairs_of(image, options);
    for (const auto& [share, d, t] : pairs) {
      const Truth& truth = image.truths[t];
      if (done[d] || matched_truths[t] || truth.ignored) continue;
      done[d] = matched_truths[t] = true;
      count_pair(static_cast<size_t>(image.detections[d].label), static_cast<size_t>(truth.label));
    }
    for (const auto& [share, d, t] : pairs)
      if (image.truths[t].ignored) done[d] = true;
    for (size_t d = 0; d < done.size(); ++d)
      if (!done[d] && image.detections[d].score >= options.score)
        count_pair(static_cast<size_t>(image.detections[d].label), background);
    for (size_t t = 0; t < matched_truths.size(); ++t)
      if (!matched_truths[t] && !image.truths[t].ignored)
        count_pair(background, static_cast<size_t>(image.truths[t].label));
  }
  return counts;
}

}  // namespace hearth::tasks
