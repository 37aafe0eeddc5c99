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

/// A row of more than kMaxLaneRowWidth elements is processed by one block. Shorter rows (for example the
/// classes of a pixel in segmentation) are processed by some lanes of a warp each, with about
/// kElementsPerLane elements per lane.
inline constexpr int64_t kMaxLaneRowWidth = 1024, kElementsPerLane = 8;

/// Work distribution in which a block of kBlockThreads threads processes one row at a time.
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
/// Work distribution in which `lanes` adjacent lanes of a warp (a power of two) process one row at a time.
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

/// Calls body(row, true) for each row in all threads that process it. All threads of a block make the same
/// number of calls, because `body` may contain barriers; calls without a row are body(last row, false).
template <typename Threads, typename Body>
RT_DEVICE void for_each_row(Threads threads, int64_t rows, Body body) {
  const int64_t of_block = threads.rows_of_block();
  for (int64_t begin = blockIdx.x * of_block; begin < rows; begin += gridDim.x * of_block) {
    const int64_t row = begin + threads.row();
    body(row < rows ? row : rows - 1, row < rows);
  }
}

/// Returns body(threads, blocks), with the work distribution (BlockOfRow or LanesOfRow) and the number of
/// blocks for an array [rows, width].
template <typename Body>
ir::Kernel with_row_threads(int64_t rows, int64_t width, Body body) {
  constexpr int64_t kMaxBlocks = 1 << 16;
  if (width > kMaxLaneRowWidth) return body(BlockOfRow(), std::clamp<int64_t>(rows, 1, kMaxBlocks));
  const int lanes = std::min(
      rt::kWarp, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(ceil_div(width, kElementsPerLane)))));
  const int64_t blocks = ceil_div(rows, kBlockThreads / lanes);
  return body(LanesOfRow{lanes}, std::clamp<int64_t>(blocks, 1, kMaxBlocks));
}

/// Computes a row's softmax statistics; all threads that process the row get the result.
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
