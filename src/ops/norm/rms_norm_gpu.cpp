#include "ops/norm/norm.h"
#include "ops/reduce/add_rows.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Sums of dweight that blocks keep apart, so that their order is fixed.
constexpr int64_t kMostParts = 64;

struct Rows {
  int64_t count;
  int width;
  float eps;
  float offset;
};
Rows rows_of(const NodeView& node) {
  const ir::Type& x = node.in_type(0);
  return {.count = x.shape[0],
          .width = static_cast<int>(x.shape[1]),
          .eps = static_cast<float>(node.attrs.real_or("eps", 0)),
          .offset = static_cast<float>(node.attrs.real_or("offset", 0))};
}

/// A block per row.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    normalise(const T* x, const float* weight, T* y, float* rstd, Rows rows) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * rows.width;
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
    const float value = rt::to_float(x[at + c]);
    squares += value * value;
  }
  const float mean = rt::reduce_block(squares, rt::Add(), 0.0F) / static_cast<float>(rows.width);
  const float scale = 1 / sqrtf(mean + rows.eps);
  if (threadIdx.x == 0) rstd[blockIdx.x] = scale;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads)
    y[at + c] = rt::from_float<T>(rt::to_float(x[at + c]) * scale * (rows.offset + weight[c]));
}

/// A block takes every gridDim.x-th row; parts[block] gets its sum of dweight. Each thread owns its columns.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) gradient(const T* x, const float* weight, const float* rstd,
                                                          const T* dy, T* dx, float* parts, Rows rows) {
  float* sums = parts + static_cast<int64_t>(blockIdx.x) * rows.width;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) sums[c] = 0;
  for (int64_t r = blockIdx.x; r < rows.count; r += gridDim.x) {
    const int64_t at = r * rows.width;
    const float scale = rstd[r];
    float dot = 0;
    for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
      const float value = rt::to_float(x[at + c]), cotangent = rt::to_float(dy[at + c]);
      dot += cotangent * (rows.offset + weight[c]) * value;
      sums[c] += cotangent * value * scale;
    }
    const float mean = rt::reduce_block(dot, rt::Add(), 0.0F) / static_cast<float>(rows.width);
    const float of_x = scale * scale * scale * mean;
    for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
      const float g = rt::to_float(dy[at + c]) * (rows.offset + weight[c]);
      dx[at + c] = rt::from_float<T>(scale * g - of_x * rt::to_float(x[at + c]));
    }
  }
}

template <typename T>
ir::Kernel make(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    rt::launch(normalise<T>, {rows.count, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<float>(args, 1), output_of<T>(args, 0), output_of<float>(args, 1), rows);
  };
  return {.run = run};
}

template <typename T>
ir::Kernel make_grad(const Rows& rows) {
  const int64_t num_parts = std::clamp<int64_t>(rows.count, 1, kMostParts);
  const auto run = [rows, num_parts](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    rt::launch(gradient<T>, {num_parts, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               input_of<float>(args, 1), input_of<float>(args, 2), input_of<T>(args, 3),
               output_of<T>(args, 0), parts, rows);
    rt::launch(add_rows<float>, {divided_up(rows.width, kBlockThreads), kBlockThreads}, args.stream->handle(),
               parts, output_of<float>(args, 1), num_parts, rows.width);
  };
  return {.run = run, .workspace_bytes = num_parts * rows.width * int64_t{sizeof(float)}};
}

}  // namespace

ir::Kernel rms_norm_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) { return make<decltype(x)>(rows_of(node)); });
}
ir::Kernel rms_norm_grad_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(0).dtype,
                           [&](auto x) { return make_grad<decltype(x)>(rows_of(node)); });
}

}  // namespace hearth::ops
