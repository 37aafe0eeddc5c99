#pragma once

#include <cstdint>

#include "base/formula.h"
#include "ir/op_def.h"

namespace hearth::ops {

/// Resampling of one axis from `in` to `out` elements, like torch's interpolate, in integer arithmetic.
/// Nearest: output o is input floor(o in / out). Linear: output o is interpolated between the two inputs
/// around position (o + 1/2) in / out - 1/2, clamped to the first and last input, or around o (in - 1) / (out
/// - 1) if aligned. Products of lengths up to kMaxLength fit in 32 bits.
struct ResizeAxis {
  static constexpr int kMaxLength = 1 << 15;
  int in, out;
  bool linear;
  bool aligned;  ///< attribute align_corners; requires linear
  bool back;     ///< true for the gradient, which is read at the outputs and computed for the inputs

  HEARTH_FORMULA int num_made() const { return back ? in : out; }
  HEARTH_FORMULA int num_read() const { return back ? out : in; }

  /// Inclusive range of elements [first, last].
  struct Span {
    int first, last;
  };
  /// Returns the range of elements that result element `result` is computed from; share() returns the weight
  /// of element `read` in it.
  HEARTH_FORMULA Span reads(int result) const { return back ? outputs_of(result) : inputs_of(result); }
  HEARTH_FORMULA float share(int result, int read) const {
    return back ? share_of(result, read) : share_of(read, result);
  }

 private:
  /// Returns the range of inputs that output o depends on.
  HEARTH_FORMULA Span inputs_of(int o) const {
    const int first = position(o) / unit();
    return {first, linear && first + 1 < in ? first + 1 : first};
  }
  /// Returns a range that contains all outputs that depend on input i.
  HEARTH_FORMULA Span outputs_of(int i) const {
    const int of_in = aligned ? in - 1 : in, of_out = aligned ? out - 1 : out;
    if (of_in == 0) return {0, out - 1};
    const int first = (i - 1) * of_out / of_in - 1, last = (i + 2) * of_out / of_in + 1;
    return {first < 0 ? 0 : first, last < out ? last : out - 1};
  }
  /// Returns the weight of input i in output o.
  HEARTH_FORMULA float share_of(int i, int o) const {
    const Span span = inputs_of(o);
    if (i < span.first || i > span.last) return 0.0F;
    if (span.first == span.last) return 1.0F;
    const auto second = static_cast<float>(position(o) % unit()) / static_cast<float>(unit());
    return i == span.last ? second : 1.0F - second;
  }
  /// Position arithmetic in integers: output o is at input position position(o) / unit().
  HEARTH_FORMULA int unit() const {
    if (aligned) return out > 1 ? out - 1 : 1;
    return linear ? 2 * out : out;
  }
  HEARTH_FORMULA int position(int o) const {
    if (aligned) return o * (in - 1);
    if (!linear) return o * in;
    const int at = (2 * o + 1) * in - out;
    return at < 0 ? 0 : at;
  }
};

/// Resampling of both axes of a batch of images [N, H, W, C].
struct Resize {
  int64_t batch;
  ResizeAxis y, x;
  int channels;
};
/// Returns the resampling of a resize node or, if `back`, of a resize_grad node, whose input is the gradient
/// of the resized images.
inline Resize resize_of(const ir::NodeView& node, bool back) {
  const Shape& in = (back ? node.out_type(0) : node.in_type(0)).shape;
  const Shape& out = (back ? node.in_type(0) : node.out_type(0)).shape;
  const bool linear = node.attrs.integer("linear") != 0;
  const bool aligned = node.attrs.integer_or("align_corners", 0) != 0;
  const auto axis = [&](size_t i) {
    return ResizeAxis{.in = static_cast<int>(in[i]),
                      .out = static_cast<int>(out[i]),
                      .linear = linear,
                      .aligned = aligned,
                      .back = back};
  };
  return {.batch = in[0], .y = axis(1), .x = axis(2), .channels = static_cast<int>(in[3])};
}

}  // namespace hearth::ops
