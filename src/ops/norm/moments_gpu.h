#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Mean and sum of squared deviations of `count` values of a channel.
struct Moments {
  float count;
  float mean;
  float squares;

  /// Merges the moments of other values of the channel (Chan, Golub, LeVeque 1979).
  RT_DEVICE void join(const Moments& more) {
    if (more.count == 0) return;
    const float share = more.count / (count + more.count), delta = more.mean - mean;
    mean += delta * share;
    squares += more.squares + delta * delta * share * count;
    count += more.count;
  }
};

/// Computes the moments of n adjacent columns over rows first, first + stride, ... before `end`. x points to
/// the first of the columns in row 0 of an array with rows of `width`. Sums are of differences from the first
/// value (shifted data), which bounds the cancellation in the sum of squares.
template <typename T, int n>
RT_DEVICE void moments_of(const T* x, int64_t width, int64_t first, int64_t stride, int64_t end,
                          Moments (&local)[n]) {
  RT_UNROLL
  for (int c = 0; c < n; ++c) local[c] = {0, 0, 0};
  if (first >= end) return;
  const rt::Vec<T, n> near = rt::load<T, n>(x + first * width);
  float count = 0, sum[n] = {}, squares[n] = {};
  for (int64_t r = first; r < end; r += stride) {
    const rt::Vec<T, n> values = rt::load<T, n>(x + r * width);
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      const float deviation = rt::to_float(values.at[c]) - rt::to_float(near.at[c]);
      sum[c] += deviation;
      squares[c] += deviation * deviation;
    }
    count += 1;
  }
  RT_UNROLL
  for (int c = 0; c < n; ++c)
    local[c] = {count, rt::to_float(near.at[c]) + sum[c] / count, squares[c] - sum[c] / count * sum[c]};
}

}  // namespace hearth::ops
