#pragma once

#include <cstdint>
#include <vector>

namespace hearth::data {

class BucketOrder;
class ClassBalance;

/// Random changes to training images; each choice is Philox of (seed, epoch, image).
struct AugmentOptions {
  int64_t crop_padding = 0;  ///< random crop after padding with zeros on every side
  bool flip = false;         ///< mirror half of the images
  float jitter = 0;          ///< brightness, contrast and saturation changed by up to this share
};

/// What one of several workers takes: of every `group` batches, counted from where a stream begins and anew
/// from the start of each epoch, those numbered [first, first + count).
struct LoaderShare {
  int64_t group = 1;
  int64_t first = 0;
  int64_t count = 1;
};

/// In which order and batches rows are read, and on how many threads.
struct LoaderOptions {
  int64_t batch = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  /// Min rows of an epoch's last batch; a smaller one is left out. Shuffling leaves out different rows each
  /// epoch.
  int64_t min_batch = 1;
  /// Draws the rows of each epoch; null: each comes once. It outlives the loader.
  const ClassBalance* balance = nullptr;
  /// Has each batch hold rows of one length, of which it tells the batch's; it is made for `batch`, and there
  /// is no `balance` then. Null: the source tells lengths. It outlives the loader.
  const BucketOrder* buckets = nullptr;
  int num_threads = 1;  ///< that decode ahead; 0 decodes inside next()
  /// An epoch must have one of these batches at least.
  LoaderShare share = {};
};

/// Returns options that read every row once, in order, for evaluation.
inline LoaderOptions in_order(LoaderOptions options) {
  options.shuffle = false;
  options.min_batch = 1;
  return options;
}

/// What becomes of the bytes of an image.
struct PixelOptions {
  AugmentOptions augment;
  /// Per channel, on a scale of 0 to 1: (pixel / 255 - mean) / std. One entry serves every channel.
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
};

}  // namespace hearth::data
