#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// A block per row.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) softmax_rows(const T* x, T* y, int64_t width) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * width;
  const RowSoftmax row = softmax_of_row(x + at, width);
  const float inverse = 1 / row.sum;
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads)
    y[at + k] = rt::from_float<T>(expf(rt::to_float(x[at + k]) - row.largest) * inverse);
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_slopes(const T* dy, const T* y, T* dx, int64_t width) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * width;
  float dot = 0;
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads)
    dot += rt::to_float(dy[at + k]) * rt::to_float(y[at + k]);
  dot = rt::reduce_block(dot, rt::Add(), 0.0F);
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads)
    dx[at + k] = rt::from_float<T>(rt::to_float(y[at + k]) * (rt::to_float(dy[at + k]) - dot));
}

struct Rows {
  int64_t count;
  int64_t width;
};
Rows rows_of(const NodeView& node) {
  const Shape& shape = node.in_type(0).shape;
  const int64_t width = shape.back();
  return {.count = width == 0 ? 0 : shape.num_elements() / width, .width = width};
}

template <typename T>
ir::Kernel make_softmax(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(softmax_rows<T>, {rows.count, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               output_of<T>(args, 0), rows.width);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_softmax_grad(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(softmax_slopes<T>, {rows.count, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<T>(args, 1), output_of<T>(args, 0), rows.width);
  };
  return {.run = run};
}
ir::Kernel softmax_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return make_softmax<decltype(x)>(rows_of(node)); });
}
ir::Kernel softmax_grad_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto dy) { return make_softmax_grad<decltype(dy)>(rows_of(node)); });
}
const GpuKernels kKernels = {{.op = "softmax", .one = softmax_gpu},
                             {.op = "softmax_grad", .one = softmax_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
