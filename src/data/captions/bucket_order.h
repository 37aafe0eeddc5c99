#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// Puts rows of one length (RowSource::row_length; of latents their size) into each batch. An epoch has every
/// row once; where the rows of a length do not fill their last batch, some of them come once more, others in
/// each epoch.
class BucketOrder {
 public:
  /// `lengths`: of each row; there is one at least.
  BucketOrder(std::span<const int64_t> lengths, int64_t batch);

  int64_t batch() const { return batch_; }
  /// Of an epoch, a multiple of the batch.
  int64_t num_places() const { return num_batches() * batch_; }
  /// That there are, longest first.
  const std::vector<int64_t>& lengths() const { return lengths_; }

  struct Draw {
    int64_t index = 0;   ///< of the row
    int64_t repeat = 0;  ///< how often its length's rows have been gone through before, in this epoch
    int64_t length = 0;
  };
  /// What stands at a place of an epoch, from 0 to num_places(): a function of `key` and `place` alone; not
  /// shuffled, of `place`. Places [i batch, (i + 1) batch) are of one length.
  Draw at(uint64_t key, int64_t place, bool shuffle) const;

 private:
  int64_t num_batches() const { return first_batches_.back(); }

  int64_t batch_;
  std::vector<int64_t> lengths_;
  std::vector<std::vector<int64_t>> rows_;  ///< of each length
  std::vector<int64_t> first_batches_;      ///< of each length, before shuffling; and one more
};

}  // namespace hearth::data
