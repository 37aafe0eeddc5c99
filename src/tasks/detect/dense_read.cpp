#include "tasks/detect/dense_read.h"

#include <algorithm>
#include <cmath>

namespace hearth::tasks {
namespace {

constexpr size_t kMaxPerLevel = 1000;

double sigmoid(double logit) { return 1 / (1 + std::exp(-logit)); }

/// Returns a lower bound of the class logits whose score can reach `min_score`, so that the sigmoid of most
/// logits need not be computed. With centerness, the score is highest at centerness 1.
double min_logit(double min_score, bool has_centerness) {
  constexpr double kRounding = 1e-6;
  const double probability = has_centerness ? min_score * min_score : min_score;
  return std::log(probability) - std::log1p(-probability) - kRounding;
}

}  // namespace

std::vector<Candidate> best_of_levels(const DensePredictions& predictions, double min_score) {
  const int64_t classes = predictions.num_classes;
  const double threshold = min_logit(min_score, predictions.centerness != nullptr);
  std::vector<Candidate> made;
  for (const PyramidLevel& level : predictions.levels) {
    const auto before = std::ssize(made);
    const int64_t begin = level.first * predictions.anchors_per_cell;
    const int64_t end = begin + level.rows * level.columns * predictions.anchors_per_cell;
    for (int64_t anchor = begin; anchor < end; ++anchor) {
      for (int64_t label = 0; label < classes; ++label) {
        const auto logit = static_cast<double>(predictions.logits[anchor * classes + label]);
        if (!(logit >= threshold)) continue;
        double score = sigmoid(logit);
        if (predictions.centerness != nullptr)
          score = std::sqrt(score * sigmoid(static_cast<double>(predictions.centerness[anchor])));
        if (score >= min_score)
          made.push_back({.anchor = anchor, .label = static_cast<int32_t>(label), .score = score});
      }
    }
    const auto first = made.begin() + before;
    if (made.end() - first <= static_cast<int64_t>(kMaxPerLevel)) continue;
    // Sorts stably, so that of equal scores the first one is kept.
    std::ranges::stable_sort(first, made.end(), std::ranges::greater(), &Candidate::score);
    made.erase(first + kMaxPerLevel, made.end());
  }
  return made;
}

Detection detection_at(const Candidate& candidate, double x0, double y0, double x1, double y1, Extent size) {
  const auto inside = [](double at, int64_t side) { return std::clamp(at, 0.0, static_cast<double>(side)); };
  const double left = inside(x0, size.width), top = inside(y0, size.height);
  return {.x = left,
          .y = top,
          .width = inside(x1, size.width) - left,
          .height = inside(y1, size.height) - top,
          .score = candidate.score,
          .label = candidate.label};
}

}  // namespace hearth::tasks
