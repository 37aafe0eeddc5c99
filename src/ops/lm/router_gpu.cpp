#include "ops/gpu_support.h"
#include "ops/lm/lm.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Sets y to 1 for the `wanted` largest elements of each row, otherwise to 0; of equal elements, the first
/// ones are selected. Each thread counts the elements that precede its element in descending order.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    choose(const T* x, T* y, int64_t count, int64_t width, int64_t wanted) {
  for (int64_t at = first_element(); at < count; at += element_stride()) {
    const int64_t i = at % width;
    const T* row = x + (at - i);
    const float local = rt::to_float(row[i]);
    int64_t before = 0;
    for (int64_t j = 0; j < width; ++j) {
      const float other = rt::to_float(row[j]);
      before += other > local || (other == local && j < i) ? 1 : 0;
    }
    y[at] = rt::from_float<T>(before < wanted ? 1.0F : 0.0F);
  }
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    multiply_rows(const T* x, const T* factors, T* y, int64_t count, int64_t width) {
  for (int64_t i = first_element(); i < count; i += element_stride())
    y[i] = rt::from_float<T>(rt::to_float(x[i]) * rt::to_float(factors[i / width]));
}

/// Computes the dot product of each row of a with that of b. One block per row.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) dot_rows(const T* a, const T* b, T* y, int64_t width) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * width;
  float sum = 0;
  for (int64_t k = threadIdx.x; k < width; k += kBlockThreads)
    sum += rt::to_float(a[at + k]) * rt::to_float(b[at + k]);
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) y[blockIdx.x] = rt::from_float<T>(sum);
}

struct Rows {
  explicit Rows(const NodeView& node)
      : count(node.in_type(0).shape.num_elements()), width(node.in_type(0).shape[1]) {}
  rt::Shape strides() const { return {num_stride_blocks(count), kBlockThreads}; }
  int64_t count;
  int64_t width;
};

template <typename T>
ir::Kernel make_mask(const Rows& rows, int64_t wanted) {
  const auto run = [=](const KernelArgs& args) {
    rt::launch(choose<T>, rows.strides(), args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0),
               rows.count, rows.width, wanted);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_scale_rows(const Rows& rows) {
  const auto run = [=](const KernelArgs& args) {
    rt::launch(multiply_rows<T>, rows.strides(), args.stream->handle(), input_of<T>(args, 0),
               input_of<T>(args, 1), output_of<T>(args, 0), rows.count, rows.width);
  };
  return {.run = run};
}
template <typename T>
ir::Kernel make_row_dot(const Rows& rows) {
  const auto run = [=](const KernelArgs& args) {
    rt::launch(dot_rows<T>, {rows.count / rows.width, kBlockThreads}, args.stream->handle(),
               input_of<T>(args, 0), input_of<T>(args, 1), output_of<T>(args, 0), rows.width);
  };
  return {.run = run};
}

ir::Kernel top_k_mask_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) {
    return make_mask<decltype(x)>(Rows(node), node.attrs.integer("count"));
  });
}
ir::Kernel scale_rows_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return make_scale_rows<decltype(x)>(Rows(node)); });
}
ir::Kernel row_dot_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return make_row_dot<decltype(x)>(Rows(node)); });
}

const GpuKernels kKernels = {{.op = "top_k_mask", .one = top_k_mask_gpu},
                             {.op = "scale_rows", .one = scale_rows_gpu},
                             {.op = "row_dot", .one = row_dot_gpu}};

}  // namespace
}  // namespace hearth::ops
