#pragma once

#include <memory>
#include <span>
#include <vector>

#include "data/dataset.h"
#include "data/images/image.h"

namespace hearth::tasks {

/// A small convolutional classifier, trained on a dataset to measure whether generated images show the class
/// that they were generated for.
class AgreementClassifier {
 public:
  /// Min number of training images.
  static constexpr int64_t kMinImages = 64;
  /// Trains on the CPU with at most 60000 images of `train`, in batches of 64; `train` must have at least
  /// kMinImages.
  AgreementClassifier(const data::Dataset& train, uint64_t seed, int num_threads);
  ~AgreementClassifier();

  /// Returns the predicted class of each image. Images are first converted to the size and the number of
  /// channels of the training images.
  std::vector<int32_t> classes(std::span<const data::Image> images) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::tasks
