#include "ops/pool/pool.h"
#include "ops/pool/resize_axis.h"
#include "ops/reduce/columns.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Rows are pixels of what is made: of the resized images, or, back, of those that were resized.
template <typename T, bool back>
__global__ void __launch_bounds__(kBlockThreads) gather(const T* from, T* to, Resize resize) {
  const int channel = own_column();
  if (channel >= resize.channels) return;
  const int height = back ? resize.y.in : resize.y.out, width = back ? resize.x.in : resize.x.out;
  const int from_height = back ? resize.y.out : resize.y.in, from_width = back ? resize.x.out : resize.x.in;
  for (int64_t row = first_row(); row < resize.batch * height * width; row += row_stride()) {
    const int64_t line = row / width;
    const int y = static_cast<int>(line % height), x = static_cast<int>(row % width);
    const T* image = from + line / height * from_height * from_width * resize.channels + channel;
    const auto rows = back ? resize.y.outputs_of(y) : resize.y.inputs_of(y);
    const auto columns = back ? resize.x.outputs_of(x) : resize.x.inputs_of(x);
    float sum = 0;
    for (int i = rows.first; i <= rows.last; ++i) {
      const float of_row = back ? resize.y.share(y, i) : resize.y.share(i, y);
      for (int j = columns.first; j <= columns.last; ++j) {
        const float share = of_row * (back ? resize.x.share(x, j) : resize.x.share(j, x));
        if (share != 0) sum += share * rt::to_float(image[(int64_t{i} * from_width + j) * resize.channels]);
      }
    }
    to[row * resize.channels + channel] = rt::from_float<T>(sum);
  }
}

template <bool back>
ir::Kernel make(const NodeView& node) {
  const Resize resize = resize_of(node, back);
  const Shape& made = node.out_type(0).shape;
  const int64_t rows = made[0] * made[1] * made[2];
  return with_storage_type(node.in_type(0).dtype, [&](auto element) {
    using T = decltype(element);
    const auto run = [=](const KernelArgs& args) {
      rt::launch(gather<T, back>, column_blocks(resize.channels, num_row_blocks(rows)), args.stream->handle(),
                 input_of<T>(args, 0), output_of<T>(args, 0), resize);
    };
    return ir::Kernel{.run = run};
  });
}

}  // namespace

ir::Kernel resize_gpu(const NodeView& node) { return make<false>(node); }
ir::Kernel resize_grad_gpu(const NodeView& node) { return make<true>(node); }

}  // namespace hearth::ops
