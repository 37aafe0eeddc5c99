#include "backend/gpu/rt_tile.h"
#include "ops/conv/patches_gpu.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads)
    convolve(Patches<T> x, Strided<T, true> w, Epilogue<T> epilogue, T* y, int64_t pixels, int64_t taps,
             int64_t channels) {
  for_each_product<T, B>(x, w, own_part<B>(pixels, channels, taps),
                         [&](int64_t row, int64_t column, float sum) {
                           const int64_t at = row * channels + column;
                           y[at] = epilogue(sum, column, at);
                         });
}

template <typename T, typename B>
ir::Kernel make_forward(const NodeView& node, const cpu::ConvShape& shape) {
  const auto run = [shape, bias = node.has_input(2), residual = node.has_input(3),
                    relu = node.attrs.text_or("activation", "none") == "relu"](const KernelArgs& args) {
    rt::launch(convolve<T, B>, product_blocks<B>(num_pixels(shape), shape.out_c, 1), args.stream->handle(),
               forward_patches(shape, input_of<T>(args, 0), false),
               Strided<T, true>{input_of<T>(args, 1), 1, shape.out_c},
               Epilogue<T>{bias ? input_of<float>(args, 2) : nullptr,
                           residual ? input_of<T>(args, 3) : nullptr, relu},
               output_of<T>(args, 0), num_pixels(shape), num_taps(shape), shape.out_c);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel forward_of(const NodeView& node) {
  const cpu::ConvShape shape = conv_shape(node.in_type(0).shape, node.in_type(1).shape, node.attrs);
  return with_blocking<T>(num_pixels(shape), shape.out_c,
                          [&](auto blocking) { return make_forward<T, decltype(blocking)>(node, shape); });
}

/// The gradient of x. With a stride, pixels of x that are that far apart are reached by the same taps: each
/// such class is a convolution of its own, with a stride of 1 and no products with what is not there.
struct InputGradient {
  int batch, in_h, in_w, in_c;
  int out_h, out_w, out_c;
  int kernel_h, kernel_w, stride, padding;
};
InputGradient device_shape(const cpu::ConvShape& s) {
  return {.batch = static_cast<int>(s.batch),
          .in_h = static_cast<int>(s.in_h),
          .in_w = static_cast<int>(s.in_w),
          .in_c = static_cast<int>(s.in_c),
          .out_h = static_cast<int>(s.out_h()),
          .out_w = static_cast<int>(s.out_w()),
          .out_c = static_cast<int>(s.out_c),
          .kernel_h = static_cast<int>(s.kernel_h),
          .kernel_w = static_cast<int>(s.kernel_w),
          .stride = static_cast<int>(s.stride),
          .padding = static_cast<int>(s.padding)};
}

/// Along one axis: the pixels of a class, from `first` on, and the taps that reach them.
struct ClassAxis {
  int first, num_pixels;
  int tap, num_taps;
  int offset;  ///< of the first pixel's first tap, in dy

  RT_DEVICE ClassAxis(int number, int length, int kernel, int stride, int padding)
      : first(number),
        num_pixels((length - number + stride - 1) / stride),
        tap((number + padding) % stride),
        num_taps(tap < kernel ? (kernel - tap + stride - 1) / stride : 0),
        offset((number + padding) / stride) {}
};

/// Weights [kernel_h, kernel_w, in, out]: a line per input channel, a term per tap of the class and output
/// channel.
template <typename T>
struct ClassWeights {
  using Line = int64_t;
  using Term = int64_t;
  static constexpr bool kLinesAreNeighbours = false;
  const T* data;
  InputGradient shape;
  int tap_y, tap_x, taps_across;

  RT_DEVICE Line line(int64_t i) const { return i * shape.out_c; }
  RT_DEVICE Term term(int64_t p) const {
    const int number = static_cast<int>(p), tap = number / shape.out_c;
    const int y = tap_y + tap / taps_across * shape.stride, x = tap_x + tap % taps_across * shape.stride;
    return static_cast<int64_t>(y * shape.kernel_w + x) * shape.in_c * shape.out_c + number % shape.out_c;
  }
  RT_DEVICE float at(Line line, Term term) const { return rt::to_float(*where(line, term)); }
  RT_DEVICE const T* where(Line line, Term term) const { return data + line + term; }
  RT_DEVICE bool in_runs() const { return shape.out_c % kWide == 0; }
};

/// blockIdx.z: the class.
template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads) spread(const T* dy, const T* w, T* dx, InputGradient shape) {
  const int number = static_cast<int>(blockIdx.z);
  const ClassAxis ys(number / shape.stride, shape.in_h, shape.kernel_h, shape.stride, shape.padding);
  const ClassAxis xs(number % shape.stride, shape.in_w, shape.kernel_w, shape.stride, shape.padding);
  if (ys.num_pixels == 0 || xs.num_pixels == 0) return;
  const PixelGrid pixels{ys.num_pixels, xs.num_pixels, false};
  const int taps_across = xs.num_taps > 0 ? xs.num_taps : 1;  // without taps there are no terms to place
  const Patches<T> lines{.images = dy,
                         .h = shape.out_h,
                         .w = shape.out_w,
                         .channels = shape.out_c,
                         .pixels = pixels,
                         .taps_across = taps_across,
                         .stride = 1,
                         .first_y = ys.offset,
                         .first_x = xs.offset,
                         .direction = -1};
  const ClassWeights<T> weights{w, shape, ys.tap, xs.tap, taps_across};
  const ProductPart part =
      own_part<B>(static_cast<int64_t>(shape.batch) * ys.num_pixels * xs.num_pixels, shape.in_c,
                  static_cast<int64_t>(ys.num_taps) * xs.num_taps * shape.out_c);
  for_each_product<T, B>(lines, weights, part, [&](int64_t row, int64_t column, float sum) {
    const PixelGrid::Place place = pixels[row];
    const int64_t y = ys.first + place.y * shape.stride, x = xs.first + place.x * shape.stride;
    dx[((place.image * shape.in_h + y) * shape.in_w + x) * shape.in_c + column] = rt::from_float<T>(sum);
  });
}

template <typename T>
ir::Kernel input_gradient_of(const NodeView& node) {
  const cpu::ConvShape shape = conv_shape(node.out_type(0).shape, node.in_type(1).shape, node.attrs);
  const int64_t largest =
      shape.batch * divided_up(shape.in_h, shape.stride) * divided_up(shape.in_w, shape.stride);
  return with_blocking<T>(largest, shape.in_c, [&](auto blocking) -> ir::Kernel {
    using B = decltype(blocking);
    const auto run = [=](const KernelArgs& args) {
      rt::launch(spread<T, B>, product_blocks<B>(largest, shape.in_c, shape.stride * shape.stride),
                 args.stream->handle(), input_of<T>(args, 0), input_of<T>(args, 1), output_of<T>(args, 0),
                 device_shape(shape));
    };
    return {.run = run};
  });
}

template <typename T>
ir::Kernel weight_gradient_of(const NodeView& node) {
  const cpu::ConvShape shape = conv_shape(node.in_type(0).shape, node.out_type(0).shape, node.attrs);
  // Large blocks of pixels gathered by taps need more registers than gfx10 has.
  return with_blocking<T, Small>(num_taps(shape), shape.out_c, [&](auto blocking) -> ir::Kernel {
    using B = decltype(blocking);
    const WeightParts parts(shape, B::kRows, B::kColumns);
    const auto run = [=](const KernelArgs& args) {
      launch_weight_gradient<T, B>(
          Transposed<Patches<T>>{forward_patches(shape, input_of<T>(args, 0), false)},
          Strided<T, true>{input_of<T>(args, 1), 1, shape.out_c}, parts,
          reinterpret_cast<float*>(args.workspace), output_of<float>(args, 0), args.stream->handle());
    };
    return {.run = run, .workspace_bytes = parts.workspace_bytes()};
  });
}

}  // namespace

ir::Kernel conv2d_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return forward_of<decltype(x)>(node); });
}
ir::Kernel conv2d_grad_input_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto dy) { return input_gradient_of<decltype(dy)>(node); });
}
ir::Kernel conv2d_grad_weight_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return weight_gradient_of<decltype(x)>(node); });
}

}  // namespace hearth::ops
