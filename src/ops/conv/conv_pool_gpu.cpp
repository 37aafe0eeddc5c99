#include "ops/conv/patches_gpu.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

// Pixels are numbered window by window, so that the kPlainThreadTile rows of a thread are the 4 pixels of one
// 2 x 2 window.
static_assert(kPlainThreadTile == 4);

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    convolve_and_pool(Patches<T, true> x, Strided<T, true> w, const float* bias, T* pooled, uint8_t* argmax,
                      int64_t pixels, int64_t taps, int64_t channels) {
  const ProductPart part = block_part<PlainBlocking>(pixels, channels, taps);
  const ThreadSums sums = add_products(x, w, part);
  const int64_t first = part.row + thread_row();
  if (first >= pixels) return;
  for (int s = 0; s < kPlainThreadTile; ++s) {
    const int64_t column = part.column + thread_column() + s;
    if (column >= channels) continue;
    float best = 0;
    int argmax_index = -1;
    for (int k = 0; k < kPlainThreadTile; ++k) {
      const float sum = sums.at[k][s] + (bias == nullptr ? 0 : bias[column]);
      const float stored = rt::to_float(rt::from_float<T>(sum));
      if (argmax_index >= 0 && !(stored > best)) continue;
      best = stored;
      argmax_index = k;
    }
    const int64_t at = first / kPlainThreadTile * channels + column;
    pooled[at] = rt::from_float<T>(best > 0 ? best : 0.0F);
    argmax[at] = static_cast<uint8_t>(argmax_index);
  }
}

template <typename T>
ir::Kernel make_forward(const NodeView& node) {
  const cpu::ConvShape shape =
      conv_shape(node.in_type(ConvIn::x).shape, node.in_type(ConvIn::w).shape, node.attrs);
  const auto run = [shape, bias = node.has_input(ConvIn::bias)](const KernelArgs& args) {
    rt::launch(convolve_and_pool<T>, product_blocks<PlainBlocking>(num_pixels(shape), shape.out_c, 1),
               args.stream->handle(), forward_patches<true>(shape, input_of<T>(args, ConvIn::x)),
               Strided<T, true>{input_of<T>(args, ConvIn::w), 1, shape.out_c},
               bias ? input_of<float>(args, ConvIn::bias) : nullptr, output_of<T>(args, 0),
               output_of<uint8_t>(args, 1), num_pixels(shape), num_taps(shape), shape.out_c);
  };
  return {.run = run};
}

/// Returns the gradient of the input of the ReLU whose output is `pooled`.
template <typename T>
RT_DEVICE float of_relu(T pooled, T dpooled) {
  return rt::to_float(pooled) > 0 ? rt::to_float(dpooled) : 0.0F;
}

/// Gradient of the convolution's result as an operand [pixels, channels], computed while it is read: dpooled
/// if the pixel is the maximum of its window and positive, otherwise 0.
template <typename T>
struct Unpooled {
  using Line = int64_t;
  struct Term {
    int64_t window;
    int argmax_index;
  };
  static constexpr bool kLinesAreNeighbors = true;
  const T* pooled;
  const uint8_t* argmax;
  const T* dpooled;
  int64_t channels;

  RT_DEVICE Line line(int64_t i) const { return i; }
  RT_DEVICE Term term(int64_t p) const { return {p / 4 * channels, static_cast<int>(p % 4)}; }
  RT_DEVICE float at(Line line, const Term& term) const {
    const int64_t i = term.window + line;
    return argmax[i] == term.argmax_index ? of_relu(pooled[i], dpooled[i]) : 0.0F;
  }
};

struct Sum {
  float value;
  RT_DEVICE void join(const Sum& more) { value += more.value; }
};

template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    add_bias_gradients(Unpooled<T> dy, float* parts, int64_t windows) {
  const int first = first_column<n>();
  Sum local[n] = {};
  for (int64_t row = first_row(); row < windows && first < dy.channels; row += row_stride()) {
    const int64_t i = row * dy.channels + first;
    const rt::Vec<T, n> pooled = rt::load<T, n>(dy.pooled + i), given = rt::load<T, n>(dy.dpooled + i);
    RT_UNROLL
    for (int c = 0; c < n; ++c) local[c].value += of_relu(pooled.at[c], given.at[c]);
  }
  join_lanes(local, static_cast<int>(dy.channels),
             [&](int column, const Sum& all) { parts[blockIdx.y * dy.channels + column] = all.value; });
}

template <typename T, int n>
ir::Kernel make_gradient(const NodeView& node) {
  const cpu::ConvShape shape =
      conv_shape(node.in_type(ConvPoolGradIn::x).shape, node.out_type(0).shape, node.attrs);
  const WeightParts parts(shape, kPlainTile, kPlainTile);
  const int64_t windows = num_pixels(shape) / 4;
  const ColumnBlocks blocks(windows, shape.out_c, n);
  const int64_t bias_parts = blocks.num_parts();
  const auto run = [=](const KernelArgs& args) {
    const Unpooled<T> dy{input_of<T>(args, ConvPoolGradIn::pooled),
                         input_of<uint8_t>(args, ConvPoolGradIn::argmax),
                         input_of<T>(args, ConvPoolGradIn::dpooled), shape.out_c};
    auto* biases = reinterpret_cast<float*>(args.workspace);
    launch_weight_gradient<T, PlainBlocking>(
        Transposed<Patches<T, true>>{forward_patches<true>(shape, input_of<T>(args, ConvPoolGradIn::x))}, dy,
        parts, biases + bias_parts * shape.out_c, output_of<float>(args, 0), args.stream->handle());
    rt::launch(add_bias_gradients<T, n>, blocks.for_parts(), args.stream->handle(), dy, biases, windows);
    rt::launch(add_rows<float>, {ceil_div(shape.out_c, kBlockThreads), kBlockThreads}, args.stream->handle(),
               biases, output_of<float>(args, 1), bias_parts, shape.out_c);
  };
  return {.run = run,
          .workspace_bytes = bias_parts * shape.out_c * int64_t{sizeof(float)} + parts.workspace_bytes()};
}

ir::Kernel conv2d_pool_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_forward<decltype(x)>(node); });
}
ir::Kernel conv2d_pool_grad_weight_gpu(const NodeView& node) {
  return with_columns(node.in_type(ConvPoolGradIn::pooled),
                      [&](auto x, auto n) { return make_gradient<decltype(x), n>(node); });
}

const GpuKernels kKernels = {{.op = "conv2d_pool", .one = conv2d_pool_gpu},
                             {.op = "conv2d_pool_grad_weight", .one = conv2d_pool_grad_weight_gpu}};

}  // namespace
}  // namespace hearth::ops
