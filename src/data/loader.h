#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/dataset.h"
#include "data/loader_options.h"

namespace hearth::data {

/// Where a loader stands: all of its state.
struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  ///< within the epoch
  int64_t total = 0;   ///< samples handed out since the start
  /// How often the order was changed, since the start and within this epoch, and before which samples.
  static constexpr int64_t kMostChanges = 4;
  int64_t num_changes = 0;
  int64_t num_changes_here = 0;
  std::array<int64_t, kMostChanges> changed_at = {};
  bool operator==(const LoaderPosition&) const = default;
};

/// From `position` on, what is left of the epoch comes in another order, still each sample once, and so do
/// the shuffled epochs after it. False: this epoch's order has changed kMostChanges times, and stays.
bool change_order(LoaderPosition& position);

/// The position `count` samples further; an epoch has `epoch_size`, and no batch reaches over its end.
LoaderPosition advanced(const LoaderPosition& from, int64_t count, int64_t epoch_size);

/// Goes through the batches of one epoch after the other and stops at those that are the share's.
class ShareCursor {
 public:
  /// An epoch has `epoch_size` samples, and one of the share's batches at least.
  ShareCursor(const LoaderShare& share, const LoaderPosition& start, int64_t batch, int64_t epoch_size);
  struct Stretch {
    LoaderPosition begin;
    int64_t count = 0;  ///< of samples
  };
  Stretch next();

 private:
  LoaderShare share_;
  LoaderPosition position_;
  int64_t batch_, epoch_size_;
  int64_t number_ = 0;  ///< in its group, of the batch at position_
};

/// A batch in the loader's staging memory: valid until the next-but-one call of next().
struct Batch {
  const float* images = nullptr;  ///< [count, side, side, channels]
  const int32_t* labels = nullptr;
  const int64_t* indices = nullptr;  ///< which images of the dataset
  int64_t count = 0;
  int64_t epoch = 0;
};

/// The place in an epoch of `count` whose sample comes at `position`: its own, unless the order was changed.
/// Stretches of `run` places stay together where there are several.
int64_t place_at(const LoaderPosition& position, int64_t count, int64_t run = 1);
/// Number `index` of a permutation of [0, count), keyed by the seed and the epoch that `position` is in.
int64_t shuffled(const LoaderPosition& position, int64_t count, int64_t index);

/// Decodes ahead on its own threads into a ring of staging buffers that are made once. The i-th sample of an
/// epoch is the same whatever the batch size and the number of threads; every sample comes exactly once per
/// epoch, and the last batch of an epoch may be smaller.
class Loader {
 public:
  /// Continues exactly where position() stood, with any batch size and number of threads. UserError when the
  /// seed or the dataset does not fit the position. The dataset must outlive the loader.
  Loader(const Dataset& dataset, LoaderOptions options, LoaderPosition start);
  Loader(const Dataset& dataset, const LoaderOptions& options)
      : Loader(dataset, options, {.seed = options.seed}) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next batch. The UserError of an image that could not be read comes at the batch that
  /// holds it, and again at each call after it.
  const Batch& next();
  /// The position after the batches handed out so far.
  LoaderPosition position() const;
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::data
