#include <algorithm>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Computes the mean and the sum of squared deviations of each channel of a tile [rows, width], in f32.
HEARTH_CLONES void tile_moments(const float* x, int64_t rows, int64_t width, float* mean, float* squares) {
  for (int64_t c = 0; c < width; ++c) mean[c] = squares[c] = 0;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) mean[c] += x[r * width + c];
  }
  const float inverse = 1.0F / static_cast<float>(rows);
  for (int64_t c = 0; c < width; ++c) mean[c] *= inverse;
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      const float d = x[r * width + c] - mean[c];
      squares[c] += d * d;
    }
  }
}

/// Merges the moments of `more` rows into those of `count` rows, per channel (Chan, Golub, LeVeque 1979).
template <typename T>
inline __attribute__((always_inline)) void join_moments(int64_t count, double* mean, double* squares,
                                                        int64_t more, const T* other_mean,
                                                        const T* other_squares, int64_t width) {
  const double share = static_cast<double>(more) / static_cast<double>(count + more);
  const double cross = share * static_cast<double>(count);
  for (int64_t c = 0; c < width; ++c) {
    const double delta = static_cast<double>(other_mean[c]) - mean[c];
    mean[c] += delta * share;
    squares[c] += static_cast<double>(other_squares[c]) + delta * delta * cross;
  }
}
HEARTH_CLONES void join_tile(int64_t count, double* mean, double* squares, int64_t more,
                             const float* other_mean, const float* other_squares, int64_t width) {
  join_moments(count, mean, squares, more, other_mean, other_squares, width);
}
HEARTH_CLONES void join_part(int64_t count, double* mean, double* squares, int64_t more,
                             const double* other_mean, const double* other_squares, int64_t width) {
  join_moments(count, mean, squares, more, other_mean, other_squares, width);
}

/// Computes the moments of rows [rows.begin, rows.end): mean and squares are [width].
void part_moments(const NormShape& shape, const void* x, Range rows, double* mean, double* squares) {
  alignas(64) float scratch[kNormTile];
  alignas(64) float tile_mean[kNormTile];
  alignas(64) float tile_squares[kNormTile];
  std::fill(mean, mean + shape.width, 0.0);
  std::fill(squares, squares + shape.width, 0.0);
  for_each_tile(shape, rows.begin, rows.end, [&](int64_t row, int64_t num, int64_t c, int64_t width) {
    const float* tile = cpu::as_f32(shape.dtype, x, row * shape.width + c, num * width, scratch);
    tile_moments(tile, num, width, tile_mean, tile_squares);
    join_tile(row - rows.begin, mean + c, squares + c, num, tile_mean, tile_squares, width);
  });
}

}  // namespace

void moments(const NormShape& shape, const void* x, const NormWorkspace& work, ThreadPool& threads) {
  threads.for_parts(shape.parts, [&](int p) {
    part_moments(shape, x, split_range(shape.rows, shape.parts, p), work.first + p * shape.width,
                 work.second + p * shape.width);
  });
  int64_t count = split_range(shape.rows, shape.parts, 0).size();
  for (int p = 1; p < shape.parts; ++p) {
    const int64_t more = split_range(shape.rows, shape.parts, p).size();
    join_part(count, work.first, work.second, more, work.first + p * shape.width,
              work.second + p * shape.width, shape.width);
    count += more;
  }
}

void measure_groups(const NormShape& shape, const void* x, const NormWorkspace& work, float* groups,
                    ThreadPool& threads) {
  const int64_t num_groups = moment_groups(shape.rows);
  threads.for_parts(shape.parts, [&](int p) {
    double *mean = work.first + p * shape.width, *squares = work.second + p * shape.width;
    const Range local = split_range(num_groups, shape.parts, p);
    for (int64_t g = local.begin; g < local.end; ++g) {
      const int64_t first = g * kMomentRows;
      part_moments(shape, x, {first, std::min(first + kMomentRows, shape.rows)}, mean, squares);
      float* out = groups + 2 * g * shape.width;
      for (int64_t c = 0; c < shape.width; ++c) {
        out[c] = static_cast<float>(mean[c]);
        out[shape.width + c] = static_cast<float>(squares[c]);
      }
    }
  });
}

void join_groups(const NormShape& shape, const float* groups, const NormWorkspace& work) {
  std::fill(work.first, work.first + shape.width, 0.0);
  std::fill(work.second, work.second + shape.width, 0.0);
  for (int64_t row = 0; row < shape.rows; row += kMomentRows) {
    const float* mean = groups + row / kMomentRows * 2 * shape.width;
    join_tile(row, work.first, work.second, std::min(kMomentRows, shape.rows - row), mean, mean + shape.width,
              shape.width);
  }
}

}  // namespace hearth::ops
