#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace hearth::tasks {

/// Number of thresholds (0, 0.01 ... 1) and of recalls at which curves are sampled.
inline constexpr size_t kCurvePoints = 101;
/// Returns the index of the highest of `count` evenly spaced thresholds in [0, 1] that does not exceed the
/// score.
size_t threshold_index(double score, size_t count);

/// Quality of scores that separate a class from the rest.
struct ScoreCurve {
  int64_t num_positives = 0;
  /// Sum over distinct scores, descending, of precision times the gain in recall, as in scikit-learn's
  /// average_precision_score; -1 without positives.
  double average_precision = -1;
  /// Highest precision of a threshold whose recall is at least 0, 0.01 ... 1. Empty without positives.
  std::vector<double> precision_at_recall;
  /// F1 at score thresholds 0, 0.01 ... 1; scores of at least the threshold are predictions of the class.
  /// Empty without positives.
  std::vector<double> f1;
};

/// Returns the mean over the curves with positives; num_positives is their sum.
ScoreCurve mean_of(std::span<const ScoreCurve> curves);

/// Collects the class probabilities of samples. Up to kMaxExactScores scores are stored, and the curves are
/// exact. Of more scores, each class counts how many are in each of equal bins, so its curve is exact for
/// thresholds between bins only.
class ClassScores {
 public:
  static constexpr int64_t kMaxExactScores = int64_t{1} << 22;
  ClassScores(int64_t num_samples, int64_t num_classes);

  /// Adds a sample. `probabilities`: one per class, in [0, 1]; NaN counts as 0. `truth`: its class.
  void add(std::span<const float> probabilities, int64_t truth);
  bool is_exact() const { return num_bins_ == 0; }
  /// Returns a curve for each class.
  std::vector<ScoreCurve> trace() const;

 private:
  /// Numbers of positives and negatives with a score, or in a bin with this lower end.
  struct Group {
    double score = 0;
    int64_t hits = 0, misses = 0;
  };
  /// Returns the groups of a class by descending score.
  std::vector<Group> groups_of(size_t label) const;
  static ScoreCurve trace(std::span<const Group> groups);

  size_t num_classes_;
  size_t num_bins_ = 0;          ///< 0: scores are stored
  std::vector<float> scores_;    ///< [sample][class]
  std::vector<int64_t> truths_;  ///< class of each sample
  std::vector<Group> bins_;      ///< [class][bin]
};

}  // namespace hearth::tasks
