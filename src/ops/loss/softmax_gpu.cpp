#include "ops/loss/loss.h"
#include "ops/loss/row_softmax.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

struct Rows {
  int64_t count;
  int64_t width;
};
Rows rows_of(const NodeView& node) {
  const Shape& shape = node.in_type(0).shape;
  return {.count = shape.num_elements() / shape.back(), .width = shape.back()};
}

template <typename T, typename Threads>
__global__ void __launch_bounds__(kBlockThreads) softmax_rows(const T* x, T* y, Rows rows, Threads threads) {
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const int64_t at = r * rows.width;
    const RowSoftmax row = softmax_of_row(threads, x + at, rows.width);
    const float inverse = 1 / row.sum;
    for (int64_t k = threads.first(); is_one && k < rows.width; k += threads.step())
      y[at + k] = rt::from_float<T>(expf(rt::to_float(x[at + k]) - row.largest) * inverse);
  });
}

template <typename T, typename Threads>
__global__ void __launch_bounds__(kBlockThreads)
    softmax_slopes(const T* dy, const T* y, T* dx, Rows rows, Threads threads) {
  for_each_row(threads, rows.count, [&](int64_t r, bool is_one) {
    const int64_t at = r * rows.width;
    float dot = 0;
    for (int64_t k = threads.first(); k < rows.width; k += threads.step())
      dot += rt::to_float(dy[at + k]) * rt::to_float(y[at + k]);
    dot = threads.reduce(dot, rt::Add(), 0.0F);
    for (int64_t k = threads.first(); is_one && k < rows.width; k += threads.step())
      dx[at + k] = rt::from_float<T>(rt::to_float(y[at + k]) * (rt::to_float(dy[at + k]) - dot));
  });
}

ir::Kernel softmax_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_storage_type(node.in_type(0).dtype, [&](auto x) {
    return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
      using T = decltype(x);
      return {.run = [=](const KernelArgs& args) {
        rt::launch(softmax_rows<T, decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                   input_of<T>(args, 0), output_of<T>(args, 0), rows, threads);
      }};
    });
  });
}
ir::Kernel softmax_grad_gpu(const NodeView& node) {
  const Rows rows = rows_of(node);
  return with_storage_type(node.in_type(0).dtype, [&](auto dy) {
    return with_row_threads(rows.count, rows.width, [&](auto threads, int64_t blocks) -> ir::Kernel {
      using T = decltype(dy);
      return {.run = [=](const KernelArgs& args) {
        rt::launch(softmax_slopes<T, decltype(threads)>, {blocks, kBlockThreads}, args.stream->handle(),
                   input_of<T>(args, 0), input_of<T>(args, 1), output_of<T>(args, 0), rows, threads);
      }};
    });
  });
}
const GpuKernels kKernels = {{.op = "softmax", .one = softmax_gpu},
                             {.op = "softmax_grad", .one = softmax_grad_gpu}};

}  // namespace
}  // namespace hearth::ops
