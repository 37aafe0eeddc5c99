#include "ops/pool/pixels_gpu.h"
#include "ops/pool/pool.h"
#include "ops/pool/resize_axis.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Rows are pixels of what is made: of the resized images, or, back, of those that were resized.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) gather(const T* from, T* to, Resize resize) {
  const int channel = first_column<1>();
  if (channel >= resize.channels) return;
  const int height = resize.y.num_made(), width = resize.x.num_made(), read_width = resize.x.num_read();
  for (int64_t row = first_row(); row < resize.batch * height * width; row += row_stride()) {
    const Pixel made = pixel_at(row, height, width);
    const T* image = from + made.image * resize.y.num_read() * read_width * resize.channels + channel;
    const auto rows = resize.y.reads(made.y), columns = resize.x.reads(made.x);
    float sum = 0;
    for (int i = rows.first; i <= rows.last; ++i) {
      const float of_row = resize.y.share(made.y, i);
      for (int j = columns.first; j <= columns.last; ++j) {
        const float share = of_row * resize.x.share(made.x, j);
        if (share != 0) sum += share * rt::to_float(image[(int64_t{i} * read_width + j) * resize.channels]);
      }
    }
    to[row * resize.channels + channel] = rt::from_float<T>(sum);
  }
}

ir::Kernel make(const Resize& resize, DType dtype) {
  const int64_t rows = counted_pixels(resize.batch, resize.y.num_made(), resize.x.num_made());
  return with_storage_type(dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [=](const KernelArgs& args) {
      rt::launch(gather<T>, ColumnBlocks(rows, resize.channels, 1).for_rows(), args.stream->handle(),
                 input_of<T>(args, 0), output_of<T>(args, 0), resize);
    };
    return ir::Kernel{.run = run};
  });
}

ir::Kernel resize_gpu(const NodeView& node) { return make(resize_of(node, false), node.in_type(0).dtype); }
ir::Kernel resize_grad_gpu(const NodeView& node) {
  return make(resize_of(node, true), node.in_type(0).dtype);
}

const GpuKernels kKernels = {{.op = "resize", .one = resize_gpu},
                             {.op = "resize_grad", .one = resize_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
