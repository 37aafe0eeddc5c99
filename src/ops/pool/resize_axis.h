#pragma once

#include <cstdint>

#include "ir/op_def.h"
#include "ops/formula.h"

namespace hearth::ops {

/// One axis of images that change their size from `in` to `out` elements, as torch's interpolate does it, in
/// whole numbers: the nearest element is floor(o in / out), the linear ones lie on both sides of
/// (o + 1/2) in / out - 1/2, the outermost standing for what would lie outside, or, with aligned corners, of
/// o (in - 1) / (out - 1). 32 bits hold the products of lengths up to kLongest.
struct ResizeAxis {
  static constexpr int kLongest = 1 << 15;
  int in, out;
  bool linear;
  bool aligned;  ///< corners; linear alone
  bool back;     ///< inputs' gradients are made of outputs'; else outputs of inputs

  HEARTH_FORMULA int num_made() const { return back ? in : out; }
  HEARTH_FORMULA int num_read() const { return back ? out : in; }

  /// Elements [first, last].
  struct Span {
    int first, last;
  };
  /// What may be read for an element that is made, and how much of each is in it.
  HEARTH_FORMULA Span reads(int made) const { return back ? outputs_of(made) : inputs_of(made); }
  HEARTH_FORMULA float share(int made, int read) const {
    return back ? share_of(made, read) : share_of(read, made);
  }

 private:
  /// What output o is made of.
  HEARTH_FORMULA Span inputs_of(int o) const {
    const int first = place(o) / unit();
    return {first, linear && first + 1 < in ? first + 1 : first};
  }
  /// The outputs that input i may be part of.
  HEARTH_FORMULA Span outputs_of(int i) const {
    const int of_in = aligned ? in - 1 : in, of_out = aligned ? out - 1 : out;
    if (of_in == 0) return {0, out - 1};
    const int first = (i - 1) * of_out / of_in - 1, last = (i + 2) * of_out / of_in + 1;
    return {first < 0 ? 0 : first, last < out ? last : out - 1};
  }
  /// How much of input i is in output o.
  HEARTH_FORMULA float share_of(int i, int o) const {
    const Span span = inputs_of(o);
    if (i < span.first || i > span.last) return 0.0F;
    if (span.first == span.last) return 1.0F;
    const auto second = static_cast<float>(place(o) % unit()) / static_cast<float>(unit());
    return i == span.last ? second : 1.0F - second;
  }
  /// An input element's length, and where output o lies, in parts of an element.
  HEARTH_FORMULA int unit() const {
    if (aligned) return out > 1 ? out - 1 : 1;
    return linear ? 2 * out : out;
  }
  HEARTH_FORMULA int place(int o) const {
    if (aligned) return o * (in - 1);
    if (!linear) return o * in;
    const int at = (2 * o + 1) * in - out;
    return at < 0 ? 0 : at;
  }
};

/// Both axes of [N, H, W, C] images.
struct Resize {
  int64_t batch;
  ResizeAxis y, x;
  int channels;
};
/// That of a resize's node, or of a resize_grad's, whose input is what the resize made.
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
