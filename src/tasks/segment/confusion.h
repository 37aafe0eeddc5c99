#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace hearth::tasks {

/// Pixels counted by their true and their predicted class, over a whole set.
class Confusion {
 public:
  explicit Confusion(int64_t num_classes);

  /// A true class that is none counts nothing.
  void add(int64_t truth, int64_t predicted) {
    if (truth >= 0 && truth < num_classes_) ++counts_[static_cast<size_t>(truth * num_classes_ + predicted)];
  }
  const std::vector<int64_t>& counts() const { return counts_; }  ///< [true][predicted]

  /// Intersection over union of each class; -1 where neither truth nor prediction has it.
  std::vector<double> iou() const;
  /// Of the true pixels of each class, the share that was found; -1 where there are none.
  std::vector<double> accuracy() const;
  int64_t num_true(int64_t label) const;
  double pixel_accuracy() const;
  /// The mean of those that are not -1; 0 where there are none.
  static double mean(const std::vector<double>& of_classes);

 private:
  int64_t at(int64_t truth, int64_t predicted) const {
    return counts_[static_cast<size_t>(truth * num_classes_ + predicted)];
  }
  int64_t num_predicted(int64_t label) const;

  int64_t num_classes_;
  std::vector<int64_t> counts_;
};

}  // namespace hearth::tasks
