#pragma once

#include <algorithm>

#include "base/threads.h"
#include "ops/support.h"

namespace hearth::ops {

/// Shape of a max pooling with square windows over images [batch, in_h, in_w, channels].
struct Pool {
  DType dtype = DType::f32;
  int64_t batch = 0, in_h = 0, in_w = 0, out_h = 0, out_w = 0, channels = 0;
  int64_t kernel = 0, stride = 0, padding = 0;

  int64_t in_at(int64_t n, int64_t y, int64_t x) const { return ((n * in_h + y) * in_w + x) * channels; }
  int64_t out_at(int64_t n, int64_t y, int64_t x) const { return ((n * out_h + y) * out_w + x) * channels; }
  /// Returns the range of positions within the window of output `out`, along one axis, that are inside of an
  /// image of `length`.
  Range taps(int64_t out, int64_t length) const {
    const int64_t start = out * stride - padding;
    return {std::max<int64_t>(0, -start), std::min(kernel, length - start)};
  }
  /// Returns the range of outputs, of `outs` along one axis, whose windows cover input `in`.
  Range covering(int64_t in, int64_t outs) const {
    const int64_t last = (in + padding) / stride;
    const int64_t before = in + padding - kernel;
    return {before < 0 ? 0 : before / stride + 1, std::min(outs, last + 1)};
  }
  /// True if pooling along lines, then along columns, takes fewer operations than pooling full windows.
  bool is_wide() const { return kernel > 2 * (stride + 1); }
};

/// Return the kernels of max_pool2d and max_pool2d_grad for windows with is_wide().
Kernel wide_max_pool(const Pool& pool, int num_threads);
Kernel wide_max_pool_grad(const Pool& pool, int num_threads);

}  // namespace hearth::ops
