#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/images/image.h"

namespace hearth::tasks {

/// A small convolutional classifier that learns the classes of a dataset by itself, to say what pictures show
/// that others have made.
class ClassJudge {
 public:
  /// Images that it needs to learn from.
  static constexpr int64_t kLeastImages = 64;
  /// Trains for some epochs over `train`, which outlives it.
  ClassJudge(const data::Dataset& train, uint64_t seed, int num_threads);
  ~ClassJudge();

  /// The class of each picture, which is brought to the dataset's size and channels.
  std::vector<int32_t> classes(std::span<const data::Image> pictures) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::tasks
