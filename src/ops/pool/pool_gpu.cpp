#include "ops/pool/pixels_gpu.h"
#include "ops/pool/pool.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Shape of a max pooling. In the kernels, a row (first_row()) is a pixel of the batch.
struct Pool {
  int64_t batch;
  int in_h, in_w, out_h, out_w, channels;
  int kernel, stride, padding;
};
Pool pool_of(const NodeView& node, const Shape& in, const Shape& out) {
  return {.batch = in[0],
          .in_h = static_cast<int>(in[1]),
          .in_w = static_cast<int>(in[2]),
          .out_h = static_cast<int>(out[1]),
          .out_w = static_cast<int>(out[2]),
          .channels = static_cast<int>(in[3]),
          .kernel = static_cast<int>(node.attrs.integer("kernel")),
          .stride = static_cast<int>(node.attrs.integer("stride")),
          .padding = static_cast<int>(node.attrs.integer_or("padding", 0))};
}

template <typename T, int n>
RT_DEVICE rt::Vec<T, n> rounded(const float (&values)[n]) {
  rt::Vec<T, n> result;
  RT_UNROLL
  for (int c = 0; c < n; ++c) result.at[c] = rt::from_float<T>(values[c]);
  return result;
}

/// Computes the first maximum of each window and its index. NaN counts as larger than any number.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) find_largest(const T* x, T* y, uint8_t* argmax, Pool pool) {
  const int channel = first_column<n>();
  if (channel >= pool.channels) return;
  for (int64_t row = first_row(); row < pool.batch * pool.out_h * pool.out_w; row += row_stride()) {
    const Pixel out = pixel_at(row, pool.out_h, pool.out_w);
    const int top = out.y * pool.stride - pool.padding, left = out.x * pool.stride - pool.padding;
    float best[n] = {};
    int tap_index[n];
    RT_UNROLL
    for (int c = 0; c < n; ++c) tap_index[c] = -1;
    for (int tap = 0; tap < pool.kernel * pool.kernel; ++tap) {
      const int in_y = top + tap / pool.kernel, in_x = left + tap % pool.kernel;
      if (in_y < 0 || in_x < 0 || in_y >= pool.in_h || in_x >= pool.in_w) continue;
      const rt::Vec<T, n> values =
          rt::load<T, n>(x + ((out.image * pool.in_h + in_y) * pool.in_w + in_x) * pool.channels + channel);
      RT_UNROLL
      for (int c = 0; c < n; ++c) {
        const float value = rt::to_float(values.at[c]);
        const bool wins = tap_index[c] < 0 || value > best[c] || value != value;
        best[c] = wins ? value : best[c];
        tap_index[c] = wins ? tap : tap_index[c];
      }
    }
    rt::Vec<uint8_t, n> taps;
    RT_UNROLL
    for (int c = 0; c < n; ++c) taps.at[c] = static_cast<uint8_t>(tap_index[c]);
    rt::store(y + row * pool.channels + channel, rounded<T>(best));
    rt::store(argmax + row * pool.channels + channel, taps);
  }
}

/// Computes dx: sums for each input pixel the dy of the windows whose maximum it is, in window order.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    scatter_to_argmax(const T* dy, const uint8_t* argmax, T* dx, Pool pool) {
  const int channel = first_column<n>();
  if (channel >= pool.channels) return;
  for (int64_t row = first_row(); row < pool.batch * pool.in_h * pool.in_w; row += row_stride()) {
    const Pixel in = pixel_at(row, pool.in_h, pool.in_w);
    const int y = in.y + pool.padding, x = in.x + pool.padding;
    const int top = y < pool.kernel ? 0 : (y - pool.kernel) / pool.stride + 1;
    const int left = x < pool.kernel ? 0 : (x - pool.kernel) / pool.stride + 1;
    float sum[n] = {};
    for (int out_y = top; out_y <= y / pool.stride && out_y < pool.out_h; ++out_y) {
      for (int out_x = left; out_x <= x / pool.stride && out_x < pool.out_w; ++out_x) {
        const int64_t i = ((in.image * pool.out_h + out_y) * pool.out_w + out_x) * pool.channels + channel;
        const int tap_index = (y - out_y * pool.stride) * pool.kernel + x - out_x * pool.stride;
        const rt::Vec<T, n> given = rt::load<T, n>(dy + i);
        const rt::Vec<uint8_t, n> won = rt::load<uint8_t, n>(argmax + i);
        RT_UNROLL
        for (int c = 0; c < n; ++c) sum[c] += won.at[c] == tap_index ? rt::to_float(given.at[c]) : 0.0F;
      }
    }
    rt::store(dx + row * pool.channels + channel, rounded<T>(sum));
  }
}

template <typename T, int n>
ir::Kernel make_max(const NodeView& node) {
  const Pool pool = pool_of(node, node.in_type(0).shape, node.out_type(0).shape);
  const int64_t rows = counted_pixels(pool.batch, pool.out_h, pool.out_w);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(find_largest<T, n>, ColumnBlocks(rows, pool.channels, n).for_rows(), args.stream->handle(),
               input_of<T>(args, 0), output_of<T>(args, 0), output_of<uint8_t>(args, 1), pool);
  };
  return {.run = run};
}
template <typename T, int n>
ir::Kernel make_max_grad(const NodeView& node) {
  const Pool pool = pool_of(node, node.out_type(0).shape, node.in_type(0).shape);
  const int64_t rows = counted_pixels(pool.batch, pool.in_h, pool.in_w);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(scatter_to_argmax<T, n>, ColumnBlocks(rows, pool.channels, n).for_rows(),
               args.stream->handle(), input_of<T>(args, 0), input_of<uint8_t>(args, 1), output_of<T>(args, 0),
               pool);
  };
  return {.run = run};
}

ir::Kernel max_pool2d_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto x, auto n) { return make_max<decltype(x), n>(node); });
}
ir::Kernel max_pool2d_grad_gpu(const NodeView& node) {
  return with_columns(node.in_type(0), [&](auto dy, auto n) { return make_max_grad<decltype(dy), n>(node); });
}
const GpuKernels kKernels = {{.op = "max_pool2d", .one = max_pool2d_gpu},
                             {.op = "max_pool2d_grad", .one = max_pool2d_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
