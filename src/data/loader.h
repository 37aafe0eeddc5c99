#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "data/dataset.h"

namespace hearth::data {

/// Random changes to training pictures; each choice is Philox of (seed, epoch, picture).
struct AugmentOptions {
  int64_t crop_padding = 0;  ///< random crop after padding with zeros on every side
  bool flip = false;         ///< mirror half of the pictures
  float jitter = 0;          ///< brightness, contrast and saturation changed by up to this share
};

struct LoaderOptions {
  int64_t batch = 32;
  uint64_t seed = 0;
  bool shuffle = true;
  int num_threads = 1;
  AugmentOptions augment;
  /// Per channel, on a scale of 0 to 1: (pixel / 255 - mean) / std. One entry serves every channel.
  std::vector<float> mean = {0.5F};
  std::vector<float> std = {0.5F};
};

/// Where a loader stands: all of its state.
struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  ///< within the epoch
  int64_t total = 0;   ///< samples handed out since the start
  bool operator==(const LoaderPosition&) const = default;
};

/// A batch in the loader's staging memory: valid until the next-but-one call of next().
struct Batch {
  const float* images = nullptr;  ///< [count, side, side, channels]
  const int32_t* labels = nullptr;
  const int64_t* indices = nullptr;  ///< which pictures of the dataset
  int64_t count = 0;
  int64_t epoch = 0;
};

/// Decodes ahead on its own threads into a ring of staging buffers that are made once. The i-th sample of an
/// epoch is the same whatever the batch size and the number of threads; every sample comes exactly once per
/// epoch, and the last batch of an epoch may be smaller.
class Loader {
 public:
  Loader(const Dataset& dataset, LoaderOptions options, LoaderPosition start);
  Loader(const Dataset& dataset, LoaderOptions options) : Loader(dataset, options, {.seed = options.seed}) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next batch. UserError when a picture could not be read.
  const Batch& next();
  /// The position after the batches handed out so far.
  LoaderPosition position() const { return handed_out_; }
  int64_t batches_per_epoch() const;

 private:
  struct Slot {
    Batch batch;
    std::vector<float> images;
    std::vector<int32_t> labels;
    std::vector<int64_t> indices;
    LoaderPosition begin;
    int64_t sequence = -1;  ///< which batch lies here
    int64_t claimed = 0;    ///< samples taken by threads
    int64_t done = 0;
  };

  void work();
  void open_slot(Slot& slot, int64_t sequence);
  void load_sample(Slot& slot, int64_t offset, std::vector<uint8_t>& bytes) const;
  LoaderPosition after(const LoaderPosition& position, int64_t count) const;

  const Dataset& dataset_;
  LoaderOptions options_;
  std::vector<Slot> ring_;
  std::vector<std::thread> threads_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t next_sequence_ = 0;  ///< the batch that next() gives
  int64_t open_sequence_ = 0;  ///< the batch that threads work on
  LoaderPosition opened_;
  LoaderPosition handed_out_;
  bool stopping_ = false;
  std::exception_ptr error_;
};

}  // namespace hearth::data
