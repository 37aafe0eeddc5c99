#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace hearth::data {

/// Draws rows so that an epoch, which stays as long as it was, has each class equally often (give or take
/// one), and each row of a class equally often (give or take one): of a frequent class a part, another one in
/// each epoch, and the rows of a rare one several times.
class ClassBalance {
 public:
  /// `labels`: of each row. Classes without rows are left out.
  explicit ClassBalance(std::span<const int32_t> labels);

  struct Draw {
    int64_t index = 0;   ///< of the row
    int64_t repeat = 0;  ///< how often its class has been gone through before, in this epoch
  };
  /// What stands at a place of an epoch, from 0 to the number of rows: a function of `key` and `place` alone.
  Draw at(uint64_t key, int64_t place) const;

 private:
  std::vector<std::vector<int64_t>> classes_;  ///< the rows of each
  int64_t num_rows_;
};

/// For rows of several classes each: the class of a row that the fewest rows have, the lowest of several; -1
/// for a row without one.
std::vector<int32_t> rarest_classes(std::span<const std::vector<int32_t>> rows);

}  // namespace hearth::data
