#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Confusion matrix of pixels, by true and predicted class, over a dataset.
class Confusion {
 public:
  explicit Confusion(int64_t num_classes);

  /// Counts a pixel. A pixel with negative `truth` (unlabeled) is not counted.
  void add(int64_t truth, int64_t predicted) {
    if (truth >= 0 && truth < num_classes_) ++counts_[static_cast<size_t>(truth * num_classes_ + predicted)];
  }
  /// Numbers of pixels, [true class][predicted class].
  const std::vector<int64_t>& counts() const { return counts_; }

  /// Returns the intersection over union of each class; -1 for a class that is neither in the true nor in the
  /// predicted masks.
  std::vector<double> iou() const;
  /// Returns the recall of each class: the share of its true pixels that were predicted; -1 if it has none.
  std::vector<double> accuracy() const;
  /// Returns the number of pixels whose true class is `label`.
  int64_t num_true(int64_t label) const;
  /// Returns the share of labeled pixels that were predicted correctly; 0 if there are none.
  double pixel_accuracy() const;
  /// Returns the mean of the values that are not -1; 0 if there are none.
  static double mean(const std::vector<double>& per_class);

 private:
  int64_t at(int64_t truth, int64_t predicted) const {
    return counts_[static_cast<size_t>(truth * num_classes_ + predicted)];
  }
  int64_t num_predicted(int64_t label) const;

  int64_t num_classes_;
  std::vector<int64_t> counts_;
};

}  // namespace hearth::tasks
