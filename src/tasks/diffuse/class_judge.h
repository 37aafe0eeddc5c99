#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"

namespace hearth::tasks {

/// A small convolutional classifier that learns the classes of a dataset by itself, to say what pictures show
/// that others have made.
class ClassJudge {
 public:
  /// Trains for some epochs over `train`. The datasets outlive it.
  ClassJudge(const data::Dataset& train, uint64_t seed, int num_threads);
  ~ClassJudge();

  /// The class of each picture, given as latents [channels, height, width] in [-1, 1].
  std::vector<int32_t> classes(std::span<const std::vector<float>> pictures) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::tasks
