#pragma once

#include <bit>
#include <type_traits>

#include "ops/gpu_support.h"

/// Helpers for kernels over an array [rows, width] in which each thread processes `n` adjacent columns (a
/// run) of some rows. threadIdx.x and blockIdx.x select the run; threadIdx.y and blockIdx.y select the rows.
namespace hearth::ops {

template <int n>
RT_DEVICE int first_column() {
  return static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x) * n;
}
/// Returns the first row of this thread; row_stride() returns the stride between its rows.
RT_DEVICE int64_t first_row() { return static_cast<int64_t>(blockIdx.y) * blockDim.y + threadIdx.y; }
RT_DEVICE int64_t row_stride() { return static_cast<int64_t>(gridDim.y) * blockDim.y; }

#if defined(__HIP_DEVICE_COMPILE__)
inline constexpr bool kLoadsTwoRows = false;
#else
/// True if threads load two rows before they use the first one: NVIDIA GPUs need more loads in flight to
/// reach their memory bandwidth.
inline constexpr bool kLoadsTwoRows = true;
#endif
/// Calls use(row, load(row)) for each row of this thread, in order.
template <typename Load, typename Use>
RT_DEVICE void for_each_row(int64_t num_rows, Load load, Use use) {
  if constexpr (kLoadsTwoRows) {
    for (int64_t r = first_row(); r < num_rows; r += 2 * row_stride()) {
      const bool has_next = r + row_stride() < num_rows;
      const int64_t next = has_next ? r + row_stride() : r;
      const auto first = load(r), second = load(next);
      use(r, first);
      if (has_next) use(next, second);
    }
  } else {
    for (int64_t r = first_row(); r < num_rows; r += row_stride()) use(r, load(r));
  }
}

/// Merges the values of the block's threads that share a column (all threadIdx.y) with Value::join(), in
/// order, and calls keep(column, value) for each column of the block. All threads of the block must call this
/// function, and only once per kernel.
template <typename Value, int n, typename Keep>
RT_DEVICE void join_lanes(const Value (&local)[n], int width, Keep keep) {
  // The padding puts the values of adjacent columns in different shared memory banks.
  RT_SHARED(values, Value[n][kBlockThreads + rt::kWarp / n]);
  const int across = static_cast<int>(blockDim.x), lanes = static_cast<int>(blockDim.y);
  const int thread = static_cast<int>(threadIdx.y) * across + static_cast<int>(threadIdx.x);
  RT_UNROLL
  for (int c = 0; c < n; ++c) values[c][thread] = local[c];
  rt::sync_block();
  const int column = static_cast<int>(blockIdx.x) * across * n + thread;
  if (thread >= across * n || column >= width) return;
  Value joined = values[thread % n][thread / n];
  for (int lane = 1; lane < lanes; ++lane) joined.join(values[thread % n][lane * across + thread / n]);
  keep(column, joined);
}

/// Returns body(n), where n is a compile-time number of columns per thread: the number of T in 16 bytes if
/// the width is a multiple of it, otherwise 1.
template <typename T, typename Body>
ir::Kernel with_columns(int64_t width, Body body) {
  constexpr int kWide = 16 / sizeof(T);
  if (width % kWide == 0) return body(std::integral_constant<int, kWide>());
  return body(std::integral_constant<int, 1>());
}

/// Returns body(T(), n) for an array of this type, whose last axis is the columns.
template <typename Body>
ir::Kernel with_columns(const ir::Type& type, Body body) {
  return with_storage_type(type.dtype, [&](auto element) {
    return with_columns<decltype(element)>(type.shape.back(), [&](auto n) { return body(element, n); });
  });
}

/// Launch shapes of kernels over an array [rows, width] in which each thread processes `local` adjacent
/// columns.
class ColumnBlocks {
 public:
  ColumnBlocks(int64_t rows, int64_t width, int local)
      : rows_(rows), runs_(width / local), across_(threads_across(runs_)), lanes_(kBlockThreads / across_) {}

  /// Returns the number of partial sums per column (blocks along the rows). The number, and thus the order of
  /// additions, depends only on the shape.
  int64_t num_parts() const {
    constexpr int64_t kRowsOfLane = 16, kMaxColumnParts = 512;
    return std::clamp<int64_t>(ceil_div(rows_, kRowsOfLane * lanes_), 1, kMaxColumnParts);
  }
  rt::Shape for_parts() const { return shape(num_parts()); }
  /// Returns a launch shape for independent rows, with at least min_rows rows per thread if there are many
  /// rows.
  rt::Shape for_rows(int64_t min_rows = 4) const {
    constexpr int64_t kMaxBlocks = 2048;
    const int64_t max_blocks = std::max<int64_t>(1, kMaxBlocks / ceil_div(runs_, across_));
    return shape(std::clamp<int64_t>(ceil_div(rows_, min_rows * lanes_), 1, max_blocks));
  }
  /// Returns a launch shape in which each block processes all rows of a few columns, one column per
  /// threadIdx.x.
  static rt::Shape for_columns(int64_t width) {
    return {grid(ceil_div(width, kMinThreadsAcross), 1), block(kMinThreadsAcross)};
  }

 private:
  /// Minimum number of threads across the columns: 8 threads with 16 bytes each read a 128-byte cache line.
  static constexpr int64_t kMinThreadsAcross = 8;
  /// Returns the number of threads across the columns that leaves the fewest threads without columns.
  static int64_t threads_across(int64_t runs) {
    if (runs < kMinThreadsAcross) return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(runs)));
    int64_t best = rt::kWarp;
    for (int64_t across = rt::kWarp / 2; across >= kMinThreadsAcross; across /= 2)
      if (ceil_div(runs, across) * across < ceil_div(runs, best) * best) best = across;
    return best;
  }
  static rt::Dim3 grid(int64_t x, int64_t y) {
    return {static_cast<unsigned>(x), static_cast<unsigned>(y), 1};
  }
  static rt::Dim3 block(int64_t across) { return grid(across, kBlockThreads / across); }
  rt::Shape shape(int64_t num_blocks) const {
    return {grid(ceil_div(runs_, across_), num_blocks), block(across_)};
  }

  int64_t rows_, runs_, across_, lanes_;
};

}  // namespace hearth::ops
