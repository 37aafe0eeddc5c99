#include "ops/pool/pixels_gpu.h"
#include "ops/pool/pool.h"
#include "ops/pool/resize_axis.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Number of source columns whose weights are kept in registers for all source lines.
constexpr int kKept = 8;

/// Computes the resized images or, for the gradient, the gradient of the original images. A row (first_row())
/// is a pixel of the result.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads) gather(const T* from, T* to, Resize resize) {
  const int channel = first_column<n>();
  if (channel >= resize.channels) return;
  const int height = resize.y.num_made(), width = resize.x.num_made(), read_width = resize.x.num_read();
  for (int64_t row = first_row(); row < resize.batch * height * width; row += row_stride()) {
    const Pixel result = pixel_at(row, height, width);
    const T* image = from + result.image * resize.y.num_read() * read_width * resize.channels + channel;
    const auto rows = resize.y.reads(result.y), columns = resize.x.reads(result.x);
    float kept[kKept], sums[n] = {};
    RT_UNROLL
    for (int k = 0; k < kKept; ++k)
      kept[k] = columns.first + k <= columns.last ? resize.x.share(result.x, columns.first + k) : 0.0F;
    for (int i = rows.first; i <= rows.last; ++i) {
      const float of_row = resize.y.share(result.y, i);
      if (of_row == 0) continue;
      const auto add = [&](int j, float of_column) {
        const float share = of_row * of_column;
        if (share == 0) return;
        const rt::Vec<T, n> values = rt::load<T, n>(image + (int64_t{i} * read_width + j) * resize.channels);
        RT_UNROLL
        for (int c = 0; c < n; ++c) sums[c] += share * rt::to_float(values.at[c]);
      };
      RT_UNROLL
      for (int k = 0; k < kKept; ++k) add(columns.first + k, kept[k]);
      for (int j = columns.first + kKept; j <= columns.last; ++j) add(j, resize.x.share(result.x, j));
    }
    rt::Vec<T, n> resized;
    RT_UNROLL
    for (int c = 0; c < n; ++c) resized.at[c] = rt::from_float<T>(sums[c]);
    rt::store(to + row * resize.channels + channel, resized);
  }
}

ir::Kernel make(const Resize& resize, const ir::Type& type) {
  const int64_t rows = counted_pixels(resize.batch, resize.y.num_made(), resize.x.num_made());
  return with_columns(type, [&](auto element, auto n) -> ir::Kernel {
    using T = decltype(element);
    return {.run = [=](const KernelArgs& args) {
      rt::launch(gather<T, n>, ColumnBlocks(rows, resize.channels, n).for_rows(), args.stream->handle(),
                 input_of<T>(args, 0), output_of<T>(args, 0), resize);
    }};
  });
}

ir::Kernel resize_gpu(const NodeView& node) { return make(resize_of(node, false), node.in_type(0)); }
ir::Kernel resize_grad_gpu(const NodeView& node) { return make(resize_of(node, true), node.in_type(0)); }

const GpuKernels kKernels = {{.op = "resize", .one = resize_gpu},
                             {.op = "resize_grad", .one = resize_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
