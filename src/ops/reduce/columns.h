#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Blocks over an array [rows, width]: a warp for kBlockColumns neighboring columns of a row, kBlockRows
/// rows at a time, so that a thread keeps its column and neighbors read neighbors. blockIdx.x counts
/// columns, blockIdx.y shares out the rows.
inline constexpr int kBlockColumns = rt::kWarp;
inline constexpr int kBlockRows = kBlockThreads / kBlockColumns;

RT_DEVICE int own_column() {
  return static_cast<int>(blockIdx.x) * kBlockColumns + static_cast<int>(threadIdx.x) % kBlockColumns;
}
/// Of kBlockRows.
RT_DEVICE int own_lane() { return static_cast<int>(threadIdx.x) / kBlockColumns; }
/// Where a thread begins, and how far apart its rows are.
RT_DEVICE int64_t first_row() { return static_cast<int64_t>(blockIdx.y) * kBlockRows + own_lane(); }
RT_DEVICE int64_t row_stride() { return static_cast<int64_t>(gridDim.y) * kBlockRows; }

/// For threads of lane 0: what value.join() makes of the values of a column's lanes, in their order. Every
/// thread of the block must call it, once in a kernel.
template <typename Value>
RT_DEVICE Value join_lanes(Value value) {
  RT_SHARED(values, Value[kBlockRows][kBlockColumns]);
  const int column = static_cast<int>(threadIdx.x) % kBlockColumns;
  values[own_lane()][column] = value;
  rt::sync_block();
  for (int lane = own_lane() + 1; lane < kBlockRows && own_lane() == 0; ++lane)
    value.join(values[lane][column]);
  return value;
}

/// Partial sums of a column: their number depends on the shape alone, and so does the order of additions.
inline int64_t num_column_parts(int64_t rows) {
  constexpr int64_t kRowsOfPart = 16 * kBlockRows, kMost = 512;
  return std::clamp<int64_t>(divided_up(rows, kRowsOfPart), 1, kMost);
}
/// Blocks that share rows which do not depend on each other.
inline int64_t num_row_blocks(int64_t rows) {
  return std::clamp<int64_t>(divided_up(rows, kBlockRows), 1, 1024);
}
inline rt::Shape column_blocks(int64_t width, int64_t num_blocks) {
  return {
      rt::Dim3{static_cast<unsigned>(divided_up(width, kBlockColumns)), static_cast<unsigned>(num_blocks), 1},
      rt::Dim3{kBlockThreads, 1, 1}};
}

}  // namespace hearth::ops
