#include "ops/reduce/columns.h"
#include "ops/reduce/reduce.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

struct Rows {
  int64_t count;
  int64_t width;
};
Rows rows_of(const Shape& shape) {
  return {.count = shape[0], .width = shape[0] == 0 ? 0 : shape.num_elements() / shape[0]};
}

/// Computes sums [rows, gridDim.x], the partial sums of each row. blockIdx.x is the part of a row; each block
/// processes every gridDim.y-th row.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) add_row_parts(const T* in, float* sums, Rows rows) {
  for (int64_t row = blockIdx.y; row < rows.count; row += gridDim.y) {
    float sum = 0;
    for (int64_t i = first_element(); i < rows.width; i += element_stride())
      sum += rt::to_float(in[row * rows.width + i]);
    sum = rt::reduce_block(sum, rt::Add(), 0.0F);
    if (threadIdx.x == 0) sums[row * gridDim.x + blockIdx.x] = sum;
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) repeat_in_rows(const float* values, T* out, Rows rows) {
  for (int64_t row = blockIdx.y; row < rows.count; row += gridDim.y) {
    const T value = rt::from_float<T>(values[row]);
    for (int64_t i = first_element(); i < rows.width; i += element_stride())
      out[row * rows.width + i] = value;
  }
}

/// Returns a launch shape with `per_row` blocks per row; if there are very many rows, each block processes
/// several.
rt::Shape blocks_of(int64_t per_row, const Rows& rows) {
  constexpr int64_t kMaxRows = 1 << 15;
  return {rt::Dim3{static_cast<unsigned>(per_row),
                   static_cast<unsigned>(std::clamp<int64_t>(rows.count, 1, kMaxRows)), 1},
          rt::Dim3{kBlockThreads, 1, 1}};
}

template <typename T>
ir::Kernel make_sum(const NodeView& node) {
  constexpr int64_t kPartElements = 4096, kMaxParts = 64;
  const Rows rows = rows_of(node.in_type(0).shape);
  const int64_t parts = std::clamp<int64_t>(ceil_div(rows.width, kPartElements), 1, kMaxParts);
  const auto run = [=](const KernelArgs& args) {
    auto* sums = parts == 1 ? output_of<float>(args, 0) : reinterpret_cast<float*>(args.workspace);
    rt::launch(add_row_parts<T>, blocks_of(parts, rows), args.stream->handle(), input_of<T>(args, 0), sums,
               rows);
    if (parts == 1) return;
    rt::launch(add_row_parts<float>, blocks_of(1, rows), args.stream->handle(), sums,
               output_of<float>(args, 0), Rows{rows.count, parts});
  };
  return {.run = run, .workspace_bytes = parts == 1 ? 0 : rows.count * parts * int64_t{sizeof(float)}};
}

template <typename T>
ir::Kernel make_broadcast(const NodeView& node) {
  const Rows rows = rows_of(node.out_type(0).shape);
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(repeat_in_rows<T>, blocks_of(num_stride_blocks(rows.width), rows), args.stream->handle(),
               input_of<float>(args, 0), output_of<T>(args, 0), rows);
  };
  return {.run = run};
}

ir::Kernel sum_trailing_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make_sum<decltype(x)>(node); });
}
ir::Kernel broadcast_trailing_gpu(const NodeView& node) {
  return with_storage_type(node.out_type(0).dtype, [&](auto y) { return make_broadcast<decltype(y)>(node); });
}

const GpuKernels kKernels = {{.op = "sum_trailing", .one = sum_trailing_gpu},
                             {.op = "broadcast_trailing", .one = broadcast_trailing_gpu}};

}  // namespace
}  // namespace hearth::ops
