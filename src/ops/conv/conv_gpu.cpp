// Convolutions on GPUs as implicit GEMM: the matrix of patches (im2col) is never stored; its elements are
// addressed in the image while a block loads its tiles. Forward: patches [pixels, taps] times weights [taps,
// output channels]. Weight gradient: the transposed patches times dy, with split-K over the pixels. Input
// gradient: one product per residue class of the stride. Grouped convolutions have too few products per
// output for matrix tiles and use direct_gpu.h.
#include <numeric>

#include "backend/gpu/rt_tile.h"
#include "ops/conv/direct_gpu.h"
#include "ops/matmul/matmul.h"
#include "ops/norm/moments_gpu.h"
#include "ops/norm/norm.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Computes the moments (mean and squared deviations per channel) of the block's outputs. Each warp processes
/// kMomentRows rows and kWarp channels at a time.
template <typename T, typename B>
RT_DEVICE void measure_block(const T* y, float* moments, const ProductPart& part) {
  constexpr int kRowGroups = B::kRows / kMomentRows, kAcross = (B::kColumns + rt::kWarp - 1) / rt::kWarp;
  static_assert(B::kRows % kMomentRows == 0);
  rt::sync_block();
  for (int task = rt::warp(); task < kRowGroups * kAcross; task += kBlockThreads / rt::kWarp) {
    const int within = task % kAcross * rt::kWarp + rt::lane();
    const int64_t column = part.column + within;
    const int64_t first = part.row + task / kAcross * kMomentRows, end = first + kMomentRows;
    if (within >= B::kColumns || column >= part.n || first >= part.m) continue;
    Moments local[1];
    moments_of(y + column, part.n, first, 1, end < part.m ? end : part.m, local);
    float* at = moments + first / kMomentRows * 2 * part.n + column;
    at[0] = local[0].mean;
    at[part.n] = local[0].squares;
  }
}

template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads) convolve(Patches<T> x, Strided<T, true> w, Images<T> out,
                                                          int64_t pixels, int64_t taps, int64_t channels) {
  const ProductPart part = block_part<B>(pixels, channels, taps);
  const int64_t corner = part.row * channels + part.column;
  T* y = out.y + corner;
  const T* residual = out.epilogue.residual;
  const Epilogue<T> epilogue{out.epilogue.bias, residual == nullptr ? residual : residual + corner,
                             out.epilogue.relu};
  for_each_product<T, B>(x, w, part, [&](int thread_output_row, int thread_output_column) {
    const ThreadOutputs local(part, thread_output_row, thread_output_column, channels);
    return [=](int row, int column, float sum) {
      const uint32_t at = local.index(row, column);
      if (out.factors != nullptr) sum *= out.factors[column];
      element(y, at) = epilogue(sum, column, at);
    };
  });
  if (out.moments != nullptr) measure_block<T, B>(out.y, out.moments, part);
}

/// Returns the forward kernel; images(args) returns the Images that receive the results.
template <typename T, typename B, typename ImagesOf>
ir::Kernel make_forward(const cpu::ConvShape& shape, ImagesOf images) {
  const auto run = [shape, images](const KernelArgs& args) {
    rt::launch(convolve<T, B>, product_blocks<B>(num_pixels(shape), shape.out_c, 1), args.stream->handle(),
               forward_patches(shape, input_of<T>(args, ConvIn::x)),
               Strided<T, true>{input_of<T>(args, ConvIn::w), 1, shape.out_c}, images(args),
               num_pixels(shape), num_taps(shape), shape.out_c);
  };
  return {.run = run};
}
template <typename T, typename ImagesOf>
ir::Kernel forward_of(const NodeView& node, ImagesOf images) {
  const cpu::ConvShape shape =
      conv_shape(node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, node.attrs);
  if (shape.groups > 1) return groups_forward<T>(shape, images);
  const Channels channels =
      channels_of(shape.out_c) == Channels::any ? Channels::any : channels_of_images(shape, shape.in_c);
  return with_blocking<T>(num_pixels(shape), shape.out_c, channels,
                          [&](auto blocking) { return make_forward<T, decltype(blocking)>(shape, images); });
}

/// Returns the kernel of conv2d or conv2d_moments; the latter has the moments of y as its second output.
template <typename T>
ir::Kernel plain_of(const NodeView& node) {
  return forward_of<T>(
      node, [bias = node.has_input(ConvIn::bias), residual = node.has_input(ConvIn::residual),
             relu = node.attrs.text_or("activation", "none") == "relu",
             measured = node.out.size() > 1](const KernelArgs& args) {
        return Images<T>{.epilogue = {bias ? input_of<float>(args, ConvIn::bias) : nullptr,
                                      residual ? input_of<T>(args, ConvIn::residual) : nullptr, relu},
                         .factors = nullptr,
                         .y = output_of<T>(args, 0),
                         .moments = measured ? output_of<float>(args, 1) : nullptr};
      });
}

/// Computes the moments of y [rows, width]; each thread processes kMomentRows rows of n columns.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    measure_groups(const T* y, float* moments, int64_t rows, int64_t width) {
  const int column = first_column<n>();
  if (column >= width) return;
  for (int64_t group = first_row(); group * kMomentRows < rows; group += row_stride()) {
    const int64_t first = group * kMomentRows, end = first + kMomentRows;
    Moments local[n];
    moments_of(y + column, width, first, 1, end < rows ? end : rows, local);
    float* at = moments + group * 2 * width + column;
    RT_UNROLL
    for (int c = 0; c < n; ++c) {
      at[c] = local[c].mean;
      at[width + c] = local[c].squares;
    }
  }
}

/// Returns a kernel that runs `kernel`, then computes the moments of output 0 [rows, width] into output 1.
template <typename T>
ir::Kernel measured(ir::Kernel kernel, int64_t rows, int64_t width) {
  return with_columns<T>(width, [&](auto n) {
    const ColumnBlocks blocks(moment_groups(rows), width, n);
    kernel.run = [make = kernel.run, blocks, rows, width](const KernelArgs& args) {
      make(args);
      rt::launch(measure_groups<T, decltype(n)::value>, blocks.for_rows(1), args.stream->handle(),
                 output_of<T>(args, 0), output_of<float>(args, 1), rows, width);
    };
    return kernel;
  });
}

/// Batch normalization folded into the epilogue of a convolution: a factor and a bias per channel.
struct Folding {
  const float* weight;
  const float* bias;
  const float* mean;
  const float* var;
  const float* conv_bias;  ///< null if the convolution has no bias
  float* factors;
};
__global__ void __launch_bounds__(kBlockThreads) fold(Folding in, float eps, int channels) {
  const int64_t c = first_element();
  if (c >= channels) return;
  const float factor = 1 / sqrtf(in.var[c] + eps) * in.weight[c];
  in.factors[c] = factor;
  in.factors[channels + c] =
      in.bias[c] + ((in.conv_bias == nullptr ? 0.0F : in.conv_bias[c]) - in.mean[c]) * factor;
}

template <typename T>
ir::Kernel normalized_of(const NodeView& node) {
  const auto channels = static_cast<int>(node.in_type(ConvNormIn::weight).shape[0]);
  ir::Kernel kernel = forward_of<T>(
      node, [channels, residual = node.has_input(ConvNormIn::residual),
             relu = node.attrs.text_or("activation", "none") == "relu"](const KernelArgs& args) {
        const auto* factors = reinterpret_cast<const float*>(args.workspace);
        return Images<T>{.epilogue = {factors + channels,
                                      residual ? input_of<T>(args, ConvNormIn::residual) : nullptr, relu},
                         .factors = factors,
                         .y = output_of<T>(args, 0),
                         .moments = nullptr};
      });
  kernel.workspace_bytes = 2 * channels * int64_t{sizeof(float)};
  kernel.run = [convolve = kernel.run, channels, conv_bias = node.has_input(ConvNormIn::conv_bias),
                eps = static_cast<float>(node.attrs.real_or("eps", 1e-5))](const KernelArgs& args) {
    rt::launch(fold, {ceil_div(channels, kBlockThreads), kBlockThreads}, args.stream->handle(),
               Folding{.weight = input_of<float>(args, ConvNormIn::weight),
                       .bias = input_of<float>(args, ConvNormIn::bias),
                       .mean = input_of<float>(args, ConvNormIn::mean),
                       .var = input_of<float>(args, ConvNormIn::var),
                       .conv_bias = conv_bias ? input_of<float>(args, ConvNormIn::conv_bias) : nullptr,
                       .factors = reinterpret_cast<float*>(args.workspace)},
               eps, channels);
    convolve(args);
  };
  return kernel;
}

/// Shape of the gradient of x. Pixels of x whose coordinates are equal modulo the stride depend on the same
/// taps. Each such residue class is computed as a separate convolution with stride 1, without products with
/// zeros.
struct InputGradient : DeviceConv {
  int tap_step;  ///< distance in the kernel between consecutive taps of a class
  int dy_step;   ///< distance in dy, toward lower coordinates, between the pixels of consecutive taps

  explicit InputGradient(const cpu::ConvShape& s)
      : DeviceConv(device_conv(s)),
        tap_step(static_cast<int>(s.stride / std::gcd(s.stride, s.dilation))),
        dy_step(static_cast<int>(s.dilation / std::gcd(s.stride, s.dilation))) {}
};

/// An axis of a residue class: its pixels first, first + stride, ... of x, and the taps tap, tap + tap_step,
/// ... that they depend on.
struct ClassAxis {
  int first, num_pixels;
  int tap, num_taps;
  int offset;  ///< coordinate in dy that the first tap reads for the first pixel

  RT_DEVICE ClassAxis(int number, int length, int kernel, const InputGradient& s)
      : first(number),
        num_pixels((length - number + s.stride - 1) / s.stride),
        tap(0),
        num_taps(0),
        offset(0) {
    while (tap < s.tap_step && (number + s.padding - tap * s.dilation) % s.stride != 0) ++tap;
    if (tap >= s.tap_step || tap >= kernel) return;
    num_taps = (kernel - tap + s.tap_step - 1) / s.tap_step;
    offset = (number + s.padding - tap * s.dilation) / s.stride;
  }
};

/// Weights [kernel_h, kernel_w, in, out] as the right operand: a line is an input channel, a term is a tap of
/// the residue class and an output channel.
template <typename T>
struct ClassWeights {
  using Line = int64_t;
  using Term = TapChannel;
  static constexpr bool kLinesAreNeighbors = false;
  const T* data;
  InputGradient shape;
  int tap_y, tap_x, taps_across;

  RT_DEVICE Line line(int64_t i) const { return i * shape.out_c; }
  RT_DEVICE Term term(int64_t p) const {
    const int number = static_cast<int>(p), tap = number / shape.out_c;
    return {tap_y + tap / taps_across * shape.tap_step, tap_x + tap % taps_across * shape.tap_step,
            number % shape.out_c};
  }
  RT_DEVICE float at(Line line, const Term& term) const { return rt::to_float(*where(line, term)); }
  RT_DEVICE const T* where(Line line, const Term& term) const {
    const int tap = (term.y * shape.kernel_w + term.x) * shape.in_c;
    return data + line + static_cast<int64_t>(tap) * shape.out_c + term.channel;
  }

  RT_DEVICE const T* origin() const { return where(0, {tap_y, tap_x, 0}); }
  RT_DEVICE bool has(const TapOffset& /*spot*/) const { return true; }
  RT_DEVICE TapGrid::Walk walk_of_line(int i) const {
    return {{.bytes = static_cast<uint32_t>(line(i) * int64_t{sizeof(T)})}, 0};
  }
  RT_DEVICE TapGrid::Walk walk_of_term(int i) const { return taps().walk(i); }
  RT_DEVICE void advance(TapGrid::Walk& walk) const { taps().advance(walk); }

 private:
  RT_DEVICE TapGrid taps() const {
    const auto element_bytes = static_cast<uint32_t>(sizeof(T));
    const uint32_t tap_bytes = element_bytes * shape.tap_step * shape.in_c * shape.out_c;
    return {.channels = shape.out_c,
            .across = taps_across,
            .step = 1,
            .element_bytes = element_bytes,
            .tap_bytes = tap_bytes,
            .row_bytes = shape.kernel_w * tap_bytes};
  }
};

template <int rows>
struct RowOffsets {
  int64_t at[rows];
};
/// Epilogue of dx: adds the residual, then sets elements to 0 whose bit in the mask is 0. Both arrays may be
/// null.
template <typename T>
struct GradientEpilogue {
  const T* residual;
  const uint8_t* mask;

  /// Returns these arrays from element `first` on, which is a multiple of kMaskElements.
  RT_DEVICE GradientEpilogue from(int64_t first) const {
    return {residual == nullptr ? nullptr : residual + first,
            mask == nullptr ? nullptr : mask + first / kMaskElements};
  }
  template <typename Index>
  RT_DEVICE T operator()(float sum, Index at) const {
    if (residual != nullptr) sum += rt::to_float(residual[at]);
    constexpr auto kBits = static_cast<Index>(kMaskElements);
    if (mask != nullptr && (mask[at / kBits] >> at % kBits & 1) == 0) sum = 0;
    return rt::from_float<T>(sum);
  }
};
/// Computes dx of one residue class; blockIdx.z is the class.
template <typename T, typename B>
__global__ void __launch_bounds__(kBlockThreads)
    spread(const T* dy, const T* w, GradientEpilogue<T> end, T* dx, InputGradient shape) {
  const int number = static_cast<int>(blockIdx.z);
  const ClassAxis ys(number / shape.stride, shape.in_h, shape.kernel_h, shape);
  const ClassAxis xs(number % shape.stride, shape.in_w, shape.kernel_w, shape);
  if (ys.num_pixels == 0 || xs.num_pixels == 0) return;
  const PixelGrid<> pixels{ys.num_pixels, xs.num_pixels};
  const int taps_across = xs.num_taps > 0 ? xs.num_taps : 1;  // without taps there are no terms
  const Patches<T> lines{.images = dy,
                         .h = shape.out_h,
                         .w = shape.out_w,
                         .channels = shape.out_c,
                         .pixels = pixels,
                         .taps_across = taps_across,
                         .stride = 1,
                         .first_y = ys.offset,
                         .first_x = xs.offset,
                         .direction = -shape.dy_step,
                         .step = {}};
  const ClassWeights<T> weights{
      .data = w, .shape = shape, .tap_y = ys.tap, .tap_x = xs.tap, .taps_across = taps_across};
  const ProductPart part =
      block_part<B>(static_cast<int64_t>(shape.batch) * ys.num_pixels * xs.num_pixels, shape.in_c,
                    static_cast<int64_t>(ys.num_taps) * xs.num_taps * shape.out_c);
  // Element offsets in dx of the block's rows; used if a stride separates the rows in memory.
  RT_SHARED(row_offsets, RowOffsets<B::kRows>);
  const int first_row = static_cast<int>(part.row);
  if (shape.stride != 1) {
    for (int i = static_cast<int>(threadIdx.x); i < B::kRows; i += kBlockThreads) {
      const PixelGrid<>::PixelPosition position = pixels[first_row + i];
      const int64_t y = ys.first + position.y * shape.stride, x = xs.first + position.x * shape.stride;
      row_offsets.at[i] = ((position.image * shape.in_h + y) * shape.in_w + x) * shape.in_c;
    }
    rt::sync_block();
  }
  const int64_t* offset_of_row = row_offsets.at;
  const int64_t corner = part.row * shape.in_c + part.column;
  const GradientEpilogue<T> in_order = end.from(corner);
  for_each_product<T, B>(lines, weights, part, [&](int thread_output_row, int thread_output_column) {
    const ThreadOutputs local(part, thread_output_row, thread_output_column, shape.in_c);
    return [=](int row, int column, float sum) {
      if (shape.stride == 1) {
        const uint32_t at = local.index(row, column);
        element(dx + corner, at) = in_order(sum, at);
      } else {
        const int64_t at = offset_of_row[row - first_row] + column;
        dx[at] = end(sum, at);
      }
    };
  });
}

template <typename T>
ir::Kernel input_gradient_of(const NodeView& node) {
  const cpu::ConvShape shape = conv_shape(node.out_type(0).shape, node.in_type(1).shape, node.attrs);
  const bool residual = node.has_input(kGradInputResidual), masked = node.has_input(kGradInputMask);
  if (shape.groups > 1) return groups_grad_input<T>(shape, residual);
  const int64_t largest =
      shape.batch * ceil_div(shape.in_h, shape.stride) * ceil_div(shape.in_w, shape.stride);
  return with_blocking<T>(
      largest, shape.in_c, channels_of_images(shape, shape.out_c), [&](auto blocking) -> ir::Kernel {
        using B = decltype(blocking);
        const auto run = [=](const KernelArgs& args) {
          rt::launch(spread<T, B>, product_blocks<B>(largest, shape.in_c, shape.stride * shape.stride),
                     args.stream->handle(), input_of<T>(args, 0), input_of<T>(args, 1),
                     GradientEpilogue<T>{residual ? input_of<T>(args, kGradInputResidual) : nullptr,
                                         masked ? input_of<uint8_t>(args, kGradInputMask) : nullptr},
                     output_of<T>(args, 0), InputGradient(shape));
        };
        return {.run = run};
      });
}

template <typename T>
ir::Kernel weight_gradient_of(const NodeView& node) {
  const cpu::ConvShape shape = conv_shape(node.in_type(0).shape, node.out_type(0).shape, node.attrs);
  if (shape.groups > 1) return groups_grad_weight<T>(shape);
  const bool even =
      channels_of_images(shape, shape.in_c) != Channels::any && channels_of(shape.out_c) != Channels::any;
  return with_blocking_in_parts<T>(num_taps(shape), shape.out_c, even, [&](auto blocking) -> ir::Kernel {
    using B = decltype(blocking);
    const WeightParts parts(shape, B::kRows, B::kColumns);
    const auto run = [=](const KernelArgs& args) {
      launch_weight_gradient<T, B>(Transposed<Patches<T>>{forward_patches(shape, input_of<T>(args, 0))},
                                   Strided<T, true>{input_of<T>(args, 1), 1, shape.out_c}, parts,
                                   reinterpret_cast<float*>(args.workspace), output_of<float>(args, 0),
                                   args.stream->handle());
    };
    return {.run = run, .workspace_bytes = parts.workspace_bytes()};
  });
}

/// Returns the type with all axes but the last merged into one.
ir::Type matrix_of(ir::Type type) {
  if (type.shape.rank() < 2) return type;
  const int64_t columns = type.shape.back();
  type.shape = {type.shape.num_elements() / columns, columns};
  return type;
}
/// Returns the matmul that is equivalent to a 1x1 convolution, whose images are matrices [pixels, channels];
/// empty for any other convolution. `transposed` names an attribute of the matmul to set to 1.
std::vector<ir::StandaloneNode> matmul_of(const NodeView& node, const Shape& x, const Shape& w,
                                          std::string_view transposed) {
  const cpu::ConvShape shape = conv_shape(x, w, node.attrs);
  if (shape.kernel_h != 1 || shape.kernel_w != 1 || shape.stride != 1 || shape.padding != 0 ||
      shape.groups != 1)
    return {};
  ir::StandaloneNode result{.attrs = node.attrs, .in = {}, .out = {matrix_of(node.out_type(0))}};
  for (const ir::Type& type : node.in) result.in.push_back(matrix_of(type));
  if (!transposed.empty()) result.attrs.set(transposed, int64_t{1});
  return {result};
}

std::vector<ir::StandaloneNode> conv2d_matmuls(const NodeView& node) {
  return matmul_of(node, node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, "");
}
std::vector<ir::StandaloneNode> conv2d_grad_input_matmuls(const NodeView& node) {
  if (node.has_input(kGradInputMask)) return {};
  auto product = matmul_of(node, node.out_type(0).shape, node.in_type(1).shape, "transpose_b");
  if (!product.empty() && node.has_input(kGradInputResidual)) {
    product[0].in.pop_back();
    add_residual(product[0], product[0].out[0]);
  }
  return product;
}
std::vector<ir::StandaloneNode> conv2d_grad_weight_matmuls(const NodeView& node) {
  return matmul_of(node, node.in_type(0).shape, node.out_type(0).shape, "transpose_a");
}

ir::Kernel conv2d_gpu(const NodeView& node) {
  if (const auto product = conv2d_matmuls(node); !product.empty()) return matmul_gpu(product[0].view());
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return plain_of<decltype(x)>(node); });
}
ir::Kernel conv2d_moments_gpu(const NodeView& node) {
  const auto product = conv2d_matmuls(node);
  const Shape& y = node.out_type(0).shape;
  const int64_t width = y.back(), rows = y.num_elements() / width;
  return with_storage_type(node.in_type(0).dtype, [&](auto x) {
    using T = decltype(x);
    if (!product.empty()) return measured<T>(matmul_gpu(product[0].view()), rows, width);
    return node.attrs.integer_or("groups", 1) > 1 ? measured<T>(plain_of<T>(node), rows, width)
                                                  : plain_of<T>(node);
  });
}
ir::Kernel conv2d_norm_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return normalized_of<decltype(x)>(node); });
}
ir::Kernel conv2d_grad_input_gpu(const NodeView& node) {
  if (const auto product = conv2d_grad_input_matmuls(node); !product.empty()) {
    if (!node.has_input(kGradInputResidual)) return matmul_gpu(product[0].view());
    return matmul_gpu(product[0].view(), {0, 1, kGradInputResidual});
  }
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto dy) { return input_gradient_of<decltype(dy)>(node); });
}
ir::Kernel conv2d_grad_weight_gpu(const NodeView& node) {
  if (const auto product = conv2d_grad_weight_matmuls(node); !product.empty())
    return matmul_gpu(product[0].view());
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return weight_gradient_of<decltype(x)>(node); });
}

const GpuKernels kKernels = {
    {.op = "conv2d", .one = conv2d_gpu, .matmuls = conv2d_matmuls},
    {.op = "conv2d_moments", .one = conv2d_moments_gpu, .matmuls = conv2d_matmuls},
    {.op = "conv2d_norm", .one = conv2d_norm_gpu},
    {.op = "conv2d_grad_input", .one = conv2d_grad_input_gpu, .matmuls = conv2d_grad_input_matmuls},
    {.op = "conv2d_grad_weight", .one = conv2d_grad_weight_gpu, .matmuls = conv2d_grad_weight_matmuls}};

}  // namespace
}  // namespace hearth::ops
