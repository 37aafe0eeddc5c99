#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

template <bool kMask>
inline __attribute__((always_inline)) void sum_rows(const float* x, const float* dy, const float* y,
                                                    const float* mean, int64_t rows, int64_t width,
                                                    float* sum, float* sum_x) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float g = kMask && !(y[at + c] > 0) ? 0.0F : dy[at + c];
      sum[c] += g;
      sum_x[c] += g * (x[at + c] - mean[c]);
    }
  }
}
HEARTH_CLONES void sum_tile(const float* x, const float* dy, const float* y, const float* mean, int64_t rows,
                            int64_t width, float* sum, float* sum_x) {
  y == nullptr ? sum_rows<false>(x, dy, y, mean, rows, width, sum, sum_x)
               : sum_rows<true>(x, dy, y, mean, rows, width, sum, sum_x);
}

struct Weights {
  const float* mean;
  const float* of_dy;
  const float* of_x;
  const float* constant;
};

template <bool kMask, bool kX>
inline __attribute__((always_inline)) void apply_rows(const Weights& weights, const float* x, const float* dy,
                                                      const float* y, int64_t rows, int64_t width,
                                                      float* dx) {
  const float *mean = weights.mean, *of_dy = weights.of_dy, *of_x = weights.of_x,
              *constant = weights.constant;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * width;
// Ignores possible aliasing in vectorization: dx may be dy, but elements are independent.
#ifndef __clang__
#pragma GCC ivdep
#endif
    for (int64_t c = 0; c < width; ++c) {
      // dy is never null here, but the static analyzer cannot determine that.
      const float g = kMask && !(y[at + c] > 0) ? 0.0F : dy[at + c];  // NOLINT
      dx[at + c] = kX ? of_dy[c] * g + of_x[c] * (x[at + c] - mean[c]) + constant[c] : of_dy[c] * g;
    }
  }
}
HEARTH_CLONES void apply_tile(const Weights& weights, const float* x, const float* dy, const float* y,
                              int64_t rows, int64_t width, float* dx) {
  if (x == nullptr) {
    y == nullptr ? apply_rows<false, false>(weights, x, dy, y, rows, width, dx)
                 : apply_rows<true, false>(weights, x, dy, y, rows, width, dx);
  } else {
    y == nullptr ? apply_rows<false, true>(weights, x, dy, y, rows, width, dx)
                 : apply_rows<true, true>(weights, x, dy, y, rows, width, dx);
  }
}
HEARTH_CLONES void mask(const float* dy, const float* y, int64_t count, float* out) {
  // y is never null here, but the static analyzer cannot determine that.
  for (int64_t i = 0; i < count; ++i) out[i] = y[i] > 0 ? dy[i] : 0.0F;  // NOLINT
}

constexpr int64_t kSumRows = 32;

struct Scratch {
  alignas(64) float x[kNormTile];
  alignas(64) float dy[kNormTile];
  alignas(64) float y[kNormTile];
  alignas(64) float out[kNormTile];
};

struct TileInputs {
  const float* x;
  const float* dy;
  const float* y;
};
/// Returns the tile of `rows` rows and `width` channels of each input array, as f32; null for null inputs.
TileInputs load_tile(const NormShape& shape, const NormCotangents& in, int64_t row, int64_t rows,
                     int64_t channel, int64_t width, Scratch& scratch) {
  const auto load = [&](const void* data, float* to) {
    return data == nullptr ? nullptr
                           : cpu::as_f32(shape.dtype, data, row * shape.width + channel, rows * width, to);
  };
  return {.x = load(in.x, scratch.x), .dy = load(in.dy, scratch.dy), .y = load(in.y, scratch.y)};
}

cpu::NormRows silu_rows(const NormCotangents& in, int64_t rows, int64_t channel, int64_t width) {
  return {.count = rows,
          .width = width,
          .mean = in.mean + channel,
          .scale = in.scale + channel,
          .bias = in.bias + channel};
}

void sum_part(const NormShape& shape, const NormCotangents& in, Range range, double* sum, double* sum_x) {
  Scratch scratch;
  alignas(64) float tile_sum[kNormTile];
  std::fill(sum, sum + shape.width, 0.0);
  std::fill(sum_x, sum_x + shape.width, 0.0);
  for_each_tile(shape, range.begin, range.end, [&](int64_t row, int64_t rows, int64_t c, int64_t width) {
    const TileInputs tile = load_tile(shape, in, row, rows, c, width, scratch);
    float* g = in.made == nullptr ? scratch.y : in.made + row * shape.width + c;
    // f32 sums cover only kSumRows rows before they are added in double: gradients of a channel often cancel,
    // so rounding errors matter.
    for (int64_t first = 0; first < rows; first += kSumRows) {
      const int64_t at = first * width, count = std::min(kSumRows, rows - first);
      std::fill_n(tile_sum, width, 0.0F);
      std::fill_n(scratch.out, width, 0.0F);
      if (in.bias != nullptr) {
        cpu::simd().norm_silu_back(silu_rows(in, count, c, width), tile.x + at, tile.dy + at, g + at,
                                   tile_sum, scratch.out);
      } else {
        sum_tile(tile.x + at, tile.dy + at, tile.y == nullptr ? nullptr : tile.y + at, in.mean + c, count,
                 width, tile_sum, scratch.out);
      }
      cpu::add_row(tile_sum, sum + c, width);
      cpu::add_row(scratch.out, sum_x + c, width);
    }
  });
}

void spread_part(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work, Range range,
                 void* dx, void* dresidual) {
  Scratch scratch;
  for_each_tile(shape, range.begin, range.end, [&](int64_t row, int64_t rows, int64_t c, int64_t width) {
    const int64_t at = row * shape.width + c;
    const int64_t count = rows * width;
    TileInputs tile = load_tile(shape, in, row, rows, c, width, scratch);
    if (in.bias != nullptr) {
      cpu::simd().norm_silu_back(silu_rows(in, rows, c, width), tile.x, tile.dy, scratch.y, nullptr, nullptr);
      tile.dy = scratch.y;
    }
    const Weights weights{
        .mean = in.mean + c, .of_dy = work.a + c, .of_x = work.b + c, .constant = work.c + c};
    float* out = run_to_write(shape.dtype, dx, at, scratch.out);
    apply_tile(weights, tile.x, tile.dy, tile.y, rows, width, out);
    cpu::store_f32(shape.dtype, out, dx, at, count);
    if (dresidual == nullptr) return;
    float* masked = run_to_write(shape.dtype, dresidual, at, scratch.out);
    mask(tile.dy, tile.y, count, masked);
    cpu::store_f32(shape.dtype, masked, dresidual, at, count);
  });
}

}  // namespace

void gradient_sums(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work,
                   ThreadPool& threads) {
  const int64_t width = shape.width;
  threads.for_parts(shape.parts, [&](int p) {
    const Range range = split_range(shape.rows, shape.parts, p);
    sum_part(shape, in, range, work.first + p * width, work.second + p * width);
  });
  for (int64_t i = width; i < shape.parts * width; ++i) {
    work.first[i % width] += work.first[i];
    work.second[i % width] += work.second[i];
  }
}

void spread_gradient(const NormShape& shape, const NormCotangents& in, const NormWorkspace& work, void* dx,
                     void* dresidual, ThreadPool& threads) {
  threads.parallel_for(shape.rows, std::max<int64_t>(1, kNormTile / shape.width),
                       [&](Range range) { spread_part(shape, in, work, range, dx, dresidual); });
}

}  // namespace hearth::ops
