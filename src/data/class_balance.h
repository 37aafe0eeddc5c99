#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// Class-balanced sampling that keeps the number of rows per epoch: each class occurs equally often, and so
/// does each row of a class (both up to a difference of one). An epoch has some rows of a frequent class,
/// different ones in each epoch, and repeats the rows of a rare class.
class ClassBalance {
 public:
  /// `labels`: class of each row. Classes without rows are ignored.
  explicit ClassBalance(std::span<const int32_t> labels);

  /// A row to read.
  struct Draw {
    int64_t index = 0;   ///< row index
    int64_t repeat = 0;  ///< number of completed passes over the rows of its class in this epoch
  };
  /// Returns the row at position `place` of an epoch, in [0, number of rows): a pure function of `key` and
  /// `place`.
  Draw at(uint64_t key, int64_t place) const;

 private:
  std::vector<std::vector<int64_t>> classes_;  ///< row indices by class
  int64_t num_rows_;
};

/// Returns the rarest class of each row, whose classes are given: the one that the fewest rows have (the
/// lowest index if tied); -1 for a row without a class.
std::vector<int32_t> rarest_classes(std::span<const std::vector<int32_t>> rows);

}  // namespace hearth::data
