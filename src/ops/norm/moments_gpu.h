#pragma once

#include "ops/gpu_support.h"

namespace hearth::ops {

/// Of `count` values of a channel: mean and sum of squared deviations.
struct Moments {
  float count;
  float mean;
  float squares;

  /// Of both groups (Chan, Golub, LeVeque 1979).
  RT_DEVICE void join(const Moments& more) {
    if (more.count == 0) return;
    const float share = more.count / (count + more.count), delta = more.mean - mean;
    mean += delta * share;
    squares += more.squares + delta * delta * share * count;
    count += more.count;
  }
};

/// Of every `stride`-th row of x [end, width] from row `first` on. Deviations from one of the values lose no
/// more digits than the number of values has.
template <typename T>
RT_DEVICE Moments moments_of(const T* x, int64_t width, int64_t column, int64_t first, int64_t stride,
                             int64_t end) {
  if (first >= end) return {0, 0, 0};
  const float near = rt::to_float(x[first * width + column]);
  float count = 0, sum = 0, squares = 0;
  for (int64_t r = first; r < end; r += stride) {
    const float deviation = rt::to_float(x[r * width + column]) - near;
    sum += deviation;
    squares += deviation * deviation;
    count += 1;
  }
  return {count, near + sum / count, squares - sum / count * sum};
}

}  // namespace hearth::ops
