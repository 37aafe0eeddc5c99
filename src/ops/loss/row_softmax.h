#pragma once

#include <bit>

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Softmax statistics of a row of logits: the maximum, and the sum of exp(logit - maximum).
struct RowSoftmax {
  float largest;
  float sum;

  RT_DEVICE float log_sum() const { return largest + logf(sum); }
};

/// Rows wider than kMaxLaneRowWidth have a block each; others share a warp, with kElementsPerLane elements
/// per lane, because segmentation has many pixels with few classes.
inline constexpr int64_t kMaxLaneRowWidth = 1024, kElementsPerLane = 8;

/// Distribution of rows in which a block of kBlockThreads processes one row.
struct BlockOfRow {
  RT_DEVICE int rows_of_block() const { return 1; }
  RT_DEVICE int row() const { return 0; }
  RT_DEVICE int first() const { return static_cast<int>(threadIdx.x); }
  RT_DEVICE int step() const { return kBlockThreads; }
  template <typename Op>
  RT_DEVICE float reduce(float value, Op op, float none) const {
    return rt::reduce_block(value, op, none);
  }
};
/// Distribution of rows in which a power of two of adjacent lanes processes one row.
struct LanesOfRow {
  int lanes;

  RT_DEVICE int rows_of_block() const { return kBlockThreads / lanes; }
  RT_DEVICE int row() const { return static_cast<int>(threadIdx.x) / lanes; }
  RT_DEVICE int first() const { return static_cast<int>(threadIdx.x) & (lanes - 1); }
  RT_DEVICE int step() const { return lanes; }
  template <typename Op>
  RT_DEVICE float reduce(float value, Op op, float) const {
    for (int mask = lanes / 2; mask > 0; mask /= 2) value = op(value, rt::shuffle_xor(value, mask));
    return value;
  }
};

/// Calls body(row, true if the row exists) in every thread that processes a part of the row. All threads of a
/// block make the same number of calls; surplus calls get the last row.
template <typename Threads, typename Body>
RT_DEVICE void for_each_row(Threads threads, int64_t rows, Body body) {
  const int64_t of_block = threads.rows_of_block();
  for (int64_t begin = blockIdx.x * of_block; begin < rows; begin += gridDim.x * of_block) {
    const int64_t row = begin + threads.row();
    body(row < rows ? row : rows - 1, row < rows);
  }
}

/// Returns body(threads, blocks) with the distribution for an array of `rows` rows of `width`.
template <typename Body>
ir::Kernel with_row_threads(int64_t rows, int64_t width, Body body) {
  constexpr int64_t kMaxBlocks = 1 << 16;
  if (width > kMaxLaneRowWidth) return body(BlockOfRow(), std::clamp<int64_t>(rows, 1, kMaxBlocks));
  const int lanes = std::min(
      rt::kWarp, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(ceil_div(width, kElementsPerLane)))));
  const int64_t blocks = ceil_div(rows, kBlockThreads / lanes);
  return body(LanesOfRow{lanes}, std::clamp<int64_t>(blocks, 1, kMaxBlocks));
}

/// Computes a row's softmax statistics; all threads of the row get the result.
template <typename Threads, typename T>
RT_DEVICE RowSoftmax softmax_of_row(Threads threads, const T* row, int64_t width) {
  constexpr float kLowest = -3.4e38F;
  float row_max = kLowest, sum = 0;
  for (int64_t k = threads.first(); k < width; k += threads.step())
    row_max = rt::Max()(rt::to_float(row[k]), row_max);
  row_max = threads.reduce(row_max, rt::Max(), kLowest);
  for (int64_t k = threads.first(); k < width; k += threads.step())
    sum += expf(rt::to_float(row[k]) - row_max);
  return {row_max, threads.reduce(sum, rt::Add(), 0.0F)};
}

}  // namespace hearth::ops
