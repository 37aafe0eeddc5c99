#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// Groups rows of equal length (RowSource::row_length; for latents: of equal image size) into batches
/// (bucketing). An epoch has each row once. If the rows of a length do not fill their last batch, some of
/// them are repeated, different ones in each epoch.
class BucketOrder {
 public:
  /// `lengths`: length of each row; must not be empty.
  BucketOrder(std::span<const int64_t> lengths, int64_t batch);

  int64_t batch() const { return batch_; }
  /// Number of rows in an epoch, including repeated ones; a multiple of the batch size.
  int64_t num_places() const { return num_batches() * batch_; }
  /// Distinct lengths, longest first.
  const std::vector<int64_t>& lengths() const { return lengths_; }

  /// A row to read.
  struct Draw {
    int64_t index = 0;   ///< index of the row in `lengths`
    int64_t repeat = 0;  ///< number of completed passes over the rows of its length in this epoch
    int64_t length = 0;  ///< its length, as given to the constructor
  };
  /// Returns the row at position `place` of an epoch, in [0, num_places()). A pure function of the arguments;
  /// `key` is used only if `shuffle`. Positions [i batch, (i + 1) batch) have rows of equal length.
  Draw at(uint64_t key, int64_t place, bool shuffle) const;

 private:
  int64_t num_batches() const { return first_batches_.back(); }

  int64_t batch_;
  std::vector<int64_t> lengths_;
  std::vector<std::vector<int64_t>> rows_;  ///< row indices by length
  /// Number of the first batch of each length, before shuffling; the last entry is the number of batches.
  std::vector<int64_t> first_batches_;
};

}  // namespace hearth::data
