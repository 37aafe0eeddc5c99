#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "data/loader_options.h"

namespace hearth::data {

/// Position of a loader in the data: its complete state, stored in checkpoints.
struct LoaderPosition {
  uint64_t seed = 0;
  int64_t epoch = 0;
  int64_t sample = 0;  ///< index of the next sample in the epoch
  int64_t total = 0;   ///< number of samples read since the start of training
  /// Max number of changes of the sample order (change_order) in one epoch.
  static constexpr int64_t kMaxChanges = 4;
  int64_t num_changes = 0;       ///< number of order changes since the start of training
  int64_t num_changes_here = 0;  ///< number of order changes in the current epoch
  /// For each order change in the current epoch, the value of `sample` at which it was made.
  std::array<int64_t, kMaxChanges> changed_at = {};
  bool operator==(const LoaderPosition&) const = default;
};

/// Returns the number of rows in an epoch over `num_rows` rows. A last batch of fewer than
/// LoaderOptions::min_batch rows is dropped, unless it is the only batch.
int64_t epoch_rows(int64_t num_rows, const LoaderOptions& options);

/// Changes the order of the samples not read yet in this epoch (each is still read once) and of later
/// shuffled epochs. Returns false, with no effect, after kMaxChanges changes in one epoch.
bool change_order(LoaderPosition& position);

/// Returns the position `count` samples after `from`. An epoch has `epoch_size` samples, and no batch crosses
/// its end.
LoaderPosition advanced(const LoaderPosition& from, int64_t count, int64_t epoch_size);

/// Iterates over the batches of all epochs and returns those in one worker's share (data parallelism).
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
  int64_t number_ = 0;  ///< index of the batch at position_ in its group, see LoaderShare
};

/// Max number of arrays in a batch.
inline constexpr size_t kMaxArrays = 6;
/// Format of one array of a batch. `name`: the model input that the array is for (a string literal).
/// `row_bytes`: bytes of one row.
struct ArrayFormat {
  const char* name = nullptr;
  int64_t row_bytes = 0;
};
/// Formats of the arrays of a batch; unused entries are at the end.
using ArrayFormats = std::array<ArrayFormat, kMaxArrays>;
/// Returns the sum of row_bytes over all arrays.
int64_t row_bytes(const ArrayFormats& formats);

/// An array of a batch. `name`: the model input that the array is for. It is a string literal, so equal names
/// can be compared by address.
struct NamedArray {
  const char* name = nullptr;
  const void* data = nullptr;
};
using NamedArrays = std::array<NamedArray, kMaxArrays>;

/// A batch in the loader's staging memory. It is valid until Loader::next() has been called twice more.
struct Batch {
  /// Arrays with the formats of RowSource::formats(), rows stored contiguously; unused entries are at the
  /// end.
  NamedArrays arrays = {};
  const int64_t* indices = nullptr;  ///< index of each row in the RowSource
  int64_t count = 0;
  int64_t epoch = 0;
  int64_t row_length = 0;  ///< row length of the batch, see RowSource::row_length

  template <typename T>
  const T* array(size_t number) const {
    return static_cast<const T*>(arrays[number].data);
  }
};

/// Arguments of RowSource::make(): the row to compute.
struct Row {
  uint64_t key = 0;  ///< key of the row's random numbers; differs when a row repeats within an epoch
  int64_t epoch = 0;
  int64_t index = 0;   ///< row index in the source
  int64_t length = 0;  ///< row length of its batch, see RowSource::row_length
  /// Scratch memory of the calling thread, of RowSource::scratch_bytes() bytes.
  std::byte* scratch = nullptr;
};

/// The data that a loader reads: rows by index. A batch has one or more arrays; each row has a part in every
/// array.
class RowSource {
 public:
  virtual ~RowSource() = default;
  virtual int64_t num_rows() const = 0;
  /// Returns the row length of the batch that begins at the position; 0 if all rows have equal length.
  virtual int64_t row_length(const LoaderPosition&) const { return 0; }
  /// Returns the formats of the arrays for batches of a row length; 0: the longest rows.
  virtual ArrayFormats formats(int64_t length) const = 0;
  /// Returns the bytes of scratch memory that make() needs per thread.
  virtual int64_t scratch_bytes() const { return 0; }
  /// Writes the row's part of each array. Thread-safe. Throws a UserError for a row that cannot be read.
  virtual void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const = 0;
};

/// Returns the position in an epoch of `count` samples that holds the sample to read at `position`. Equal to
/// position.sample unless change_order() was called. Groups of `run` consecutive positions stay together, if
/// at least two groups are unread.
int64_t position_in_epoch(const LoaderPosition& position, int64_t count, int64_t run = 1);
/// Returns element `index` of a random permutation of [0, count), keyed by the seed and epoch of `position`.
int64_t shuffled(const LoaderPosition& position, int64_t count, int64_t index);

/// Reads batches ahead on background threads (prefetch) into a ring of preallocated staging buffers. The
/// order of the rows does not depend on the batch size or the number of threads. Each row occurs once per
/// epoch, or as often as LoaderOptions::balance samples it. The last batch of an epoch may be smaller.
class Loader {
 public:
  /// Starts at a position returned by position(), with any batch size and number of threads. Throws a
  /// UserError if the seed or source does not match the position. The source must outlive the loader.
  Loader(const RowSource& source, const LoaderOptions& options, const LoaderPosition& start);
  Loader(const RowSource& source, const LoaderOptions& options)
      : Loader(source, options, {.seed = options.seed}) {}
  ~Loader();
  Loader(const Loader&) = delete;
  Loader& operator=(const Loader&) = delete;

  /// Waits for the next batch and returns it. If a row of this batch could not be read, throws its UserError,
  /// also at each later call.
  const Batch& next();
  /// Returns the position after all batches returned so far.
  LoaderPosition position() const;
  int64_t batches_per_epoch() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace hearth::data
