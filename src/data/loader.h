#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

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

/// Returns the number of rows in an epoch over `num_rows` rows. A last batch of fewer than
/// LoaderOptions::min_batch rows is left out, unless it is the only one.
int64_t epoch_rows(int64_t num_rows, const LoaderOptions& options);

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

/// Max number of arrays in a batch.
inline constexpr size_t kMaxArrays = 6;
/// Format of one array: the name of the model input that it is for (a string literal), and the bytes of a
/// row.
struct ArrayFormat {
  const char* name = nullptr;
  int64_t row_bytes = 0;
};
/// Formats of the arrays of a batch; unused entries are last.
using ArrayFormats = std::array<ArrayFormat, kMaxArrays>;
/// Returns the bytes of a row in all arrays.
int64_t row_bytes(const ArrayFormats& formats);

/// An array with the name of the model input that it is for: a string literal, so that equal addresses mean
/// equal names.
struct NamedArray {
  const char* name = nullptr;
  const void* data = nullptr;
};
using NamedArrays = std::array<NamedArray, kMaxArrays>;

/// A batch in the loader's staging memory: valid until the next-but-one call of next().
struct Batch {
  /// Arrays of RowSource::formats, without gaps between rows; unused entries are last.
  NamedArrays arrays = {};
  const int64_t* indices = nullptr;  ///< which rows of the source
  int64_t count = 0;
  int64_t epoch = 0;
  int64_t row_length = 0;  ///< RowSource::row_length

  template <typename T>
  const T* array(size_t number) const {
    return static_cast<const T*>(arrays[number].data);
  }
};

/// One row of an epoch.
struct Row {
  uint64_t key = 0;  ///< of the random choices: the epoch's, or another for a row that comes again in it
  int64_t epoch = 0;
  int64_t index = 0;             ///< of the source
  int64_t length = 0;            ///< RowSource::row_length of its batch
  std::byte* scratch = nullptr;  ///< RowSource::scratch_bytes of the calling thread's own
};

/// What a loader reads: rows by index, each of which is a piece of every array of a batch.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t num_rows() const = 0;
  /// How long the rows are of a batch that begins there; 0 where all are alike.
  virtual int64_t row_length(const LoaderPosition&) const { return 0; }
  /// Returns the formats of the arrays for a row length; 0: the longest rows.
  virtual ArrayFormats formats(int64_t length) const = 0;
  /// What a thread needs beside the arrays to make a row; it is allocated once.
  virtual int64_t scratch_bytes() const { return 0; }
  /// Writes one row's piece of each array; any number of threads call it at once. UserError for a row that
  /// cannot be read.
  virtual void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const = 0;
};

/// The place in an epoch of `count` whose sample comes at `position`: its own, unless the order was changed.
/// Stretches of `run` places stay together where there are several.
int64_t place_at(const LoaderPosition& position, int64_t count, int64_t run = 1);
/// Number `index` of a permutation of [0, count), keyed by the seed and the epoch that `position` is in.
int64_t shuffled(const LoaderPosition& position, int64_t count, int64_t index);

/// Makes rows ahead on its own threads, in a ring of staging buffers that are made once. The i-th row of an
/// epoch is the same whatever the batch size and the number of threads; every row comes exactly once per
/// epoch, or as LoaderOptions::balance draws it, and the last batch of an epoch may be smaller.
class Loader {
 public:
  /// Continues exactly where position() stood, with any batch size and number of threads. UserError when the
  /// seed or the source does not fit the position. The source must outlive the loader.
  Loader(const RowSource& source, const LoaderOptions& options, const LoaderPosition& start);
  Loader(const RowSource& source, const LoaderOptions& options)
      : Loader(source, options, {.seed = options.seed}) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next batch. The UserError of a row that could not be read comes at the batch that holds
  /// it, and again at each call after it.
  const Batch& next();
  /// The position after the batches handed out so far.
  LoaderPosition position() const;
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::data
