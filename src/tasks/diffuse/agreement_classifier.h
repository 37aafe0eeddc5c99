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
  /// Trains on the CPU on min(60000, train.size()) images, in batches of 64; `train` has at least
  /// kMinImages.
  AgreementClassifier(const data::Dataset& train, uint64_t seed, int num_threads);
  ~AgreementClassifier();

  /// Returns the predicted class of each image. Images are resized and converted to the dataset's size and
  /// channels.
  std::vector<int32_t> classes(std::span<const data::Image> images) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::tasks
