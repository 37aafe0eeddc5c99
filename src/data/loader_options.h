#pragma once

#include <cstdint>
#include <vector>

namespace hearth::data {

class BucketOrder;
class ClassBalance;

/// Random augmentation of training images. The random numbers are Philox of (seed, epoch, image).
struct AugmentOptions {
  /// Pixels of zero padding on every side before a random crop to the original size.
  int64_t crop_padding = 0;
  bool flip = false;  ///< True if images are mirrored left to right with probability 1/2
  float jitter = 0;   ///< maximum relative change of brightness, contrast and saturation
};

/// The batches that one worker reads in data-parallel training. Batches of an epoch are numbered from 0 and
/// divided into groups of `group` batches; the worker reads batches [first, first + count) of each group.
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
  /// Assignment of rows to batches of equal row length; its batch size must equal `batch`, and `balance` must
  /// be null. Null: RowSource::row_length() determines the row length of each batch. Must outlive the loader.
  const BucketOrder* buckets = nullptr;
  int num_threads = 1;  ///< prefetch threads; 0: next() decodes in the calling thread
  /// Batches that this worker reads; an epoch must contain at least one of them.
  LoaderShare share = {};
};

/// Returns the options changed for evaluation: every row is read once, in order.
inline LoaderOptions in_order(LoaderOptions options) {
  options.shuffle = false;
  options.min_batch = 1;
  return options;
}

/// Conversion of pixel bytes to floats.
struct PixelOptions {
  AugmentOptions augment;
  /// Mean and standard deviation per channel, for pixels scaled to [0, 1]: (pixel / 255 - mean) / std. A
  /// single entry applies to all channels.
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
};

}  // namespace hearth::data
