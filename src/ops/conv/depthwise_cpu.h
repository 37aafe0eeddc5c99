#pragma once

#include <cstddef>
#include <vector>

#include "base/threads.h"
#include "ops/conv/conv_spec.h"

namespace hearth::cpu {

/// How one array of pixels is made of another by a kernel's taps: y of x, or dx of dy. Everything but the
/// rows' addresses is decided when it is made.
class DepthwisePass {
 public:
  /// Neighboring pixels of a row that see the same taps.
  struct Stretch {
    struct Tap {
      int64_t number, source;  ///< in a row of the kernel; the column that it finds for the first pixel
    };
    int64_t first, count;
    std::vector<Tap> taps;  ///< from left to right
  };

  DepthwisePass(const ConvShape& shape, bool backward);

  int64_t in_h() const { return backward_ ? s_.out_h() : s_.in_h; }
  int64_t in_w() const { return backward_ ? s_.out_w() : s_.in_w; }
  int64_t out_h() const { return backward_ ? s_.in_h : s_.out_h(); }
  int64_t out_w() const { return backward_ ? s_.in_w : s_.out_w(); }
  /// Columns from one pixel of a stretch to the next, and from what a tap finds for one to the next.
  int64_t out_step() const { return backward_ ? s_.stride : 1; }
  int64_t in_step() const { return backward_ ? 1 : s_.stride; }
  /// Whether a tap of a row finds for a pixel what the one before finds for the next pixel.
  bool is_even() const { return s_.dilation == 1 && (backward_ || s_.stride == 1); }
  const std::vector<Stretch>& stretches() const { return stretches_; }
  /// The row that a tap finds for a row of the output; -1: it is outside, or between the strides.
  int64_t source_row(int64_t row, int64_t tap) const { return source(row, tap, in_h()); }
  /// The rows that some tap finds for any of these.
  Range source_rows(Range rows) const;

 private:
  int64_t source(int64_t at, int64_t tap, int64_t length) const;

  ConvShape s_;
  bool backward_;
  std::vector<Stretch> stretches_;
};

/// A convolution with a group for each input channel: no matmul, for each output is a sum of a few products.
/// Vectors run along channels; the outputs of some neighboring pixels stay in registers.
class DepthwiseConv {
 public:
  explicit DepthwiseConv(const ConvSpec& spec);

  int64_t forward_workspace_bytes() const { return pass_workspace_bytes(false); }
  void forward(const void* x, const void* w, const float* bias, const void* residual, void* y,
               std::byte* workspace, ThreadPool& threads) const;
  int64_t data_workspace_bytes() const { return pass_workspace_bytes(true); }
  void backward_data(const void* dy, const void* w, void* dx, std::byte* workspace,
                     ThreadPool& threads) const;
  int64_t weights_workspace_bytes() const;
  void backward_weights(const void* x, const void* dy, float* dw, std::byte* workspace,
                        ThreadPool& threads) const;

 private:
  int64_t pass_workspace_bytes(bool backward) const;

  ConvSpec spec_;
  DepthwisePass forward_, backward_;
};

}  // namespace hearth::cpu
