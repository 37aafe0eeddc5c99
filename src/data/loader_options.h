#pragma once

#include <cstdint>
#include <vector>

namespace hearth::data {

class BucketOrder;
class ClassBalance;

/// Random augmentation of training images, determined by Philox of (seed, epoch, image).
struct AugmentOptions {
  int64_t crop_padding = 0;  ///< random crop after padding with zeros on every side
  bool flip = false;         ///< mirror half of the images
  float jitter = 0;          ///< maximum relative change of brightness, contrast and saturation
};

/// Share of the batches that a worker reads: batches are counted in groups of `group`, starting again at each
/// epoch, and the worker reads batches [first, first + count) of each group.
struct LoaderShare {
  int64_t group = 1;
  int64_t first = 0;
  int64_t count = 1;
};

/// Order and batches in which rows are read, and number of threads.
struct LoaderOptions {
  int64_t batch = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  /// Minimum rows of an epoch's last batch; a smaller batch is dropped. With shuffling, different rows are
  /// dropped in each epoch.
  int64_t min_batch = 1;
  /// Class-balanced sampling; null: each row once per epoch. Must outlive the loader.
  const ClassBalance* balance = nullptr;
  /// Batches of rows with equal length; its batch size must equal `batch`, and `balance` must be null. Null:
  /// the source defines lengths. Must outlive the loader.
  const BucketOrder* buckets = nullptr;
  int num_threads = 1;  ///< prefetch threads; 0: next() decodes in the calling thread
  /// This worker's share; an epoch must contain at least one of its batches.
  LoaderShare share = {};
};

/// Returns options that read every row once, in order, for evaluation.
inline LoaderOptions in_order(LoaderOptions options) {
  options.shuffle = false;
  options.min_batch = 1;
  return options;
}

/// Conversion of pixel bytes to floats.
struct PixelOptions {
  AugmentOptions augment;
  /// Per channel, for pixels scaled to [0, 1]: (pixel / 255 - mean) / std. A single entry applies
  /// to all channels.
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
};

}  // namespace hearth::data
