#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/loader_options.h"

namespace hearth::data {

/// Complete state of a loader, stored in checkpoints.
struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  ///< next sample within the epoch
  int64_t total = 0;   ///< samples read since the start
  /// Number of changes of the sample order, in total and in this epoch, and the samples before
  /// which they happened.
  static constexpr int64_t kMaxChanges = 4;
  int64_t num_changes = 0;
  int64_t num_changes_here = 0;
  std::array<int64_t, kMaxChanges> changed_at = {};
  bool operator==(const LoaderPosition&) const = default;
};

/// Returns the number of rows in an epoch over `num_rows` rows. A last batch of fewer than
/// LoaderOptions::min_batch rows is dropped, unless it is the only batch.
int64_t epoch_rows(int64_t num_rows, const LoaderOptions& options);

/// Changes the order of the samples not read yet in this epoch (each is still read once) and of later
/// shuffled epochs. Returns false, with no effect, after kMaxChanges changes in one epoch.
bool change_order(LoaderPosition& position);

/// Returns the position `count` samples later. An epoch has `epoch_size` samples, and no batch extends
/// beyond its end.
LoaderPosition advanced(const LoaderPosition& from, int64_t count, int64_t epoch_size);

/// Iterates over the batches of all epochs and returns those that belong to one worker's share.
class ShareCursor {
 public:
  /// An epoch has `epoch_size` samples and must contain at least one batch of the share.
  ShareCursor(const LoaderShare& share, const LoaderPosition& start, int64_t batch, int64_t epoch_size);
  /// The samples of a batch.
  struct BatchRange {
    LoaderPosition begin;
    int64_t count = 0;  ///< number of samples
  };
  BatchRange next();

 private:
  LoaderShare share_;
  LoaderPosition position_;
  int64_t batch_, epoch_size_;
  int64_t number_ = 0;  ///< index of the batch at position_ within its group
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

/// A batch in the loader's staging memory, valid until next() has been called twice more.
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

/// A row to make.
struct Row {
  uint64_t key = 0;  ///< RNG key; differs when a row repeats within an epoch
  int64_t epoch = 0;
  int64_t index = 0;             ///< row index in the source
  int64_t length = 0;            ///< RowSource::row_length of its batch
  std::byte* scratch = nullptr;  ///< scratch memory of the calling thread, RowSource::scratch_bytes
};

/// The data that a loader reads: rows by index, where a row has a part in each array of a batch.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t num_rows() const = 0;
  /// Returns the row length of the batch that begins at the position; 0 if all rows have equal length.
  virtual int64_t row_length(const LoaderPosition&) const { return 0; }
  /// Returns the formats of the arrays for a row length; 0: the longest rows.
  virtual ArrayFormats formats(int64_t length) const = 0;
  /// What a thread needs beside the arrays to make a row; it is allocated once.
  virtual int64_t scratch_bytes() const { return 0; }
  /// Writes one row's piece of each array; any number of threads call it at once. UserError for a row that
  /// cannot be read.
  virtual void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const = 0;
};

/// Returns the place, in an epoch of `count`, of the sample at `position`: equal to position.sample unless
/// the order was changed. Groups of `run` consecutive places stay together, if there are several groups.
int64_t position_in_epoch(const LoaderPosition& position, int64_t count, int64_t run = 1);
/// Returns element `index` of a random permutation of [0, count), keyed by the seed and epoch of `position`.
int64_t shuffled(const LoaderPosition& position, int64_t count, int64_t index);

/// Loads batches ahead on separate threads (prefetch) into a ring of preallocated staging buffers. The order
/// of the rows does not depend on the batch size or the number of threads. Each row occurs once per epoch, or
/// as sampled by LoaderOptions::balance; the last batch of an epoch may be smaller.
class Loader {
 public:
  /// Starts at a position returned by position(), with any batch size and number of threads. UserError if the
  /// seed or source does not match the position. The source must outlive the loader.
  Loader(const RowSource& source, const LoaderOptions& options, const LoaderPosition& start);
  Loader(const RowSource& source, const LoaderOptions& options)
      : Loader(source, options, {.seed = options.seed}) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next batch and returns it. Throws the UserError of a row in this batch that could not be
  /// read, and again at each later call.
  const Batch& next();
  /// Returns the position after all batches returned so far.
  LoaderPosition position() const;
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::data
