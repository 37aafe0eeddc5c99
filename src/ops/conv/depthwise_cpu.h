#pragma once

#include <cstddef>
#include <vector>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// Addressing of a depthwise pass, which computes output pixels from source pixels: y from x (forward), or dx
/// from dy (backward). The constructor computes everything except row addresses.
class DepthwisePass {
 public:
  /// Output pixels of a row, out_step() columns apart, for which the same taps are inside of the source
  /// image.
  struct Stretch {
    struct Tap {
      int64_t number, source;  ///< column in the kernel; source column for the first pixel
    };
    int64_t first, count;
    std::vector<Tap> taps;  ///< in the order of their source columns
  };

  DepthwisePass(const ConvShape& shape, bool backward);

  /// Height and width of the source (in) and of the result (out) of the pass.
  int64_t in_h() const { return backward_ ? s_.out_h() : s_.in_h; }
  int64_t in_w() const { return backward_ ? s_.out_w() : s_.in_w; }
  int64_t out_h() const { return backward_ ? s_.in_h : s_.out_h(); }
  int64_t out_w() const { return backward_ ? s_.in_w : s_.out_w(); }
  /// Distance in columns between consecutive output pixels of a stretch, and between their source pixels.
  int64_t out_step() const { return backward_ ? s_.stride : 1; }
  int64_t in_step() const { return backward_ ? 1 : s_.stride; }
  /// True if each tap reads the pixel that the previous tap reads for the next output pixel (a sliding
  /// window).
  bool is_even() const { return s_.dilation == 1 && (backward_ || s_.stride == 1); }
  const std::vector<Stretch>& stretches() const { return stretches_; }
  /// Returns the source row that a kernel row `tap` reads for an output row; -1 if that row is outside of the
  /// image or, backward, not a multiple of the stride.
  int64_t source_row(int64_t row, int64_t tap) const { return source(row, tap, in_h()); }
  /// Returns the range of source rows of all taps for these output rows.
  Range source_rows(Range rows) const;

 private:
  int64_t source(int64_t at, int64_t tap, int64_t length) const;

  ConvShape s_;
  bool backward_;
  std::vector<Stretch> stretches_;
};

/// Depthwise convolution: each input channel is a group. Computed without a matmul, because each output is a
/// sum of few products. SIMD vectors run along channels; sums of several adjacent pixels are kept in
/// registers.
class DepthwiseConv {
 public:
  explicit DepthwiseConv(const ConvSpec& spec);

  /// Computes y = relu(conv(x, w) + bias + residual). `workspace` has forward_workspace_bytes().
  int64_t forward_workspace_bytes() const { return pass_workspace_bytes(false); }
  void forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
               std::byte* workspace, ThreadPool& threads) const;
  /// Computes dx from dy and w. `workspace` has data_workspace_bytes().
  int64_t data_workspace_bytes() const { return pass_workspace_bytes(true); }
  void backward_data(const void* dy, const void* w, void* dx, std::byte* workspace,
                     ThreadPool& threads) const;
  /// Computes dw (f32, HWIO) from x and dy. `workspace` has weights_workspace_bytes().
  int64_t weights_workspace_bytes() const;
  void backward_weights(const void* x, const void* dy, float* dw, std::byte* workspace,
                        ThreadPool& threads) const;

 private:
  int64_t pass_workspace_bytes(bool backward) const;

  ConvSpec spec_;
  DepthwisePass forward_, backward_;
};

}  // namespace hearth::cpu
