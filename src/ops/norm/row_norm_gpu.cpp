#include "ops/norm/norm.h"
#include "ops/reduce/add_rows.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Maximum number of partial sums of dweight, one per block, and number of intermediate sums to which they
/// are reduced first. Both are constants, so that the order of additions does not depend on the GPU.
constexpr int64_t kMaxParts = 512, kFewParts = 16;

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

/// Arrays of the forward pass; bias and mean are null for rms_norm.
template <typename T, typename Out>
struct Arrays {
  const T* x;
  const float* weight;
  const float* bias;
  Out* y;
  float* rstd;
  float* mean;
};
/// Arrays of the gradient; residual and copy may be null.
template <typename T, typename Copy>
struct GradArrays {
  const T* x;
  const float* weight;
  const float* rstd;
  const T* dy;
  const float* mean;
  const T* residual;
  T* dx;
  Copy* copy;
  float* weight_parts;
  float* bias_parts;
};

/// Normalizes a row; one block per row.
template <typename T, typename Out, bool centered>
__global__ void __launch_bounds__(kBlockThreads) normalize(Arrays<T, Out> arrays, Rows rows) {
  const int64_t at = static_cast<int64_t>(blockIdx.x) * rows.width;
  const float share = 1 / static_cast<float>(rows.width);
  float mean = 0;
  if constexpr (centered) {
    float sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads)
      sum += rt::to_float(arrays.x[at + c]);
    mean = rt::reduce_block(sum, rt::Add(), 0.0F) * share;
    if (threadIdx.x == 0) arrays.mean[blockIdx.x] = mean;
  }
  float squares = 0;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
    const float value = rt::to_float(arrays.x[at + c]) - mean;
    squares += value * value;
  }
  const float scale = 1 / sqrtf(rt::reduce_block(squares, rt::Add(), 0.0F) * share + rows.eps);
  if (threadIdx.x == 0) arrays.rstd[blockIdx.x] = scale;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
    const float y = (rt::to_float(arrays.x[at + c]) - mean) * scale * (rows.offset + arrays.weight[c]);
    arrays.y[at + c] = rt::from_float<Out>(centered ? y + arrays.bias[c] : y);
  }
}

/// Computes dx plus the residual of every gridDim.x-th row, and this block's partial sums of dweight and
/// dbias. Each thread always processes the same columns, so that it needs no atomics.
template <typename T, typename Copy, bool centered>
__global__ void __launch_bounds__(kBlockThreads) gradient(GradArrays<T, Copy> arrays, Rows rows) {
  float* weight_sums = arrays.weight_parts + static_cast<int64_t>(blockIdx.x) * rows.width;
  float* bias_sums = arrays.bias_parts + static_cast<int64_t>(blockIdx.x) * rows.width;
  for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
    weight_sums[c] = 0;
    if constexpr (centered) bias_sums[c] = 0;
  }
  const float share = 1 / static_cast<float>(rows.width);
  for (int64_t r = blockIdx.x; r < rows.count; r += gridDim.x) {
    const int64_t at = r * rows.width;
    const float scale = arrays.rstd[r], mean = centered ? arrays.mean[r] : 0.0F;
    float dot = 0, sum = 0;
    for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
      const float value = rt::to_float(arrays.x[at + c]) - mean, cotangent = rt::to_float(arrays.dy[at + c]);
      const float g = cotangent * (rows.offset + arrays.weight[c]);
      dot += g * value;
      sum += g;
      weight_sums[c] += cotangent * value * scale;
      if constexpr (centered) bias_sums[c] += cotangent;
    }
    const float of_x = scale * scale * scale * rt::reduce_block(dot, rt::Add(), 0.0F) * share;
    const float less = centered ? scale * rt::reduce_block(sum, rt::Add(), 0.0F) * share : 0.0F;
    for (int c = static_cast<int>(threadIdx.x); c < rows.width; c += kBlockThreads) {
      const float g = rt::to_float(arrays.dy[at + c]) * (rows.offset + arrays.weight[c]);
      const float value = rt::to_float(arrays.x[at + c]) - mean;
      float dx = scale * g - of_x * value - less;
      if (arrays.residual != nullptr) dx += rt::to_float(arrays.residual[at + c]);
      arrays.dx[at + c] = rt::from_float<T>(dx);
      if (arrays.copy != nullptr) arrays.copy[at + c] = rt::from_float<Copy>(dx);
    }
  }
}

template <typename T, typename Out, bool centered>
ir::Kernel make(const Rows& rows) {
  const auto run = [rows](const KernelArgs& args) {
    const Arrays<T, Out> arrays{.x = input_of<T>(args, 0),
                                .weight = input_of<float>(args, 1),
                                .bias = centered ? input_of<float>(args, 2) : nullptr,
                                .y = output_of<Out>(args, 0),
                                .rstd = output_of<float>(args, 1),
                                .mean = centered ? output_of<float>(args, 2) : nullptr};
    rt::launch(normalize<T, Out, centered>, {rows.count, kBlockThreads}, args.stream->handle(), arrays, rows);
  };
  return {.run = run};
}

/// Computes sum [width] of parts [num_parts, width]; `few` is scratch for kFewParts * width floats.
void add_parts(void* stream, const float* parts, float* few, float* sum, int64_t num_parts, int64_t width) {
  const auto blocks = static_cast<unsigned>(ceil_div(width, kBlockThreads));
  if (num_parts > kFewParts) {
    rt::launch(add_rows<float>, {rt::Dim3{blocks, kFewParts, 1}, rt::Dim3{kBlockThreads, 1, 1}}, stream,
               parts, few, num_parts, width);
    parts = few;
    num_parts = kFewParts;
  }
  rt::launch(add_rows<float>, {blocks, kBlockThreads}, stream, parts, sum, num_parts, width);
}

template <typename T, typename Copy, bool centered>
ir::Kernel make_grad(const Rows& rows) {
  const int64_t num_parts = std::clamp<int64_t>(rows.count, 1, kMaxParts), size = num_parts * rows.width;
  const int64_t few = kFewParts * rows.width;
  const auto run = [rows, num_parts, size](const KernelArgs& args) {
    auto* parts = reinterpret_cast<float*>(args.workspace);
    void* stream = args.stream->handle();
    constexpr size_t kResidual = row_norm_residual(centered);
    const bool adds = args.in.size() > kResidual && args.in[kResidual] != nullptr;
    const GradArrays<T, Copy> arrays{.x = input_of<T>(args, 0),
                                     .weight = input_of<float>(args, 1),
                                     .rstd = input_of<float>(args, 2),
                                     .dy = input_of<T>(args, 3),
                                     .mean = centered ? input_of<float>(args, 4) : nullptr,
                                     .residual = adds ? input_of<T>(args, kResidual) : nullptr,
                                     .dx = output_of<T>(args, 0),
                                     .copy = args.out.size() > row_norm_copy(centered)
                                                 ? output_of<Copy>(args, row_norm_copy(centered))
                                                 : nullptr,
                                     .weight_parts = parts,
                                     .bias_parts = parts + size};
    rt::launch(gradient<T, Copy, centered>, {num_parts, kBlockThreads}, stream, arrays, rows);
    float* const fewer = parts + (centered ? 2 : 1) * size;
    add_parts(stream, arrays.weight_parts, fewer, output_of<float>(args, 1), num_parts, rows.width);
    if (centered)
      add_parts(stream, arrays.bias_parts, fewer, output_of<float>(args, 2), num_parts, rows.width);
  };
  return {.run = run, .workspace_bytes = ((centered ? 2 : 1) * size + few) * int64_t{sizeof(float)}};
}

/// Calls use(x, y) with a value of the dtype of x and one of `out`, which differs only if x is f32.
template <typename Use>
ir::Kernel with_dtypes(const NodeView& node, DType out, Use use) {
  return with_storage_type(node.in_type(0).dtype, [&](auto x) {
    if constexpr (std::is_same_v<decltype(x), float>) {
      return with_storage_type(out, [&](auto y) { return use(x, y); });
    } else {
      return use(x, x);
    }
  });
}

template <bool centered>
ir::Kernel norm_gpu(const NodeView& node) {
  return with_dtypes(node, node.out_type(0).dtype,
                     [&](auto x, auto y) { return make<decltype(x), decltype(y), centered>(rows_of(node)); });
}
template <bool centered>
ir::Kernel norm_grad_gpu(const NodeView& node) {
  return with_dtypes(
      node, node.out.size() > row_norm_copy(centered) ? node.out.back().dtype : DType::f32,
      [&](auto x, auto y) { return make_grad<decltype(x), decltype(y), centered>(rows_of(node)); });
}

const GpuKernels kKernels = {{.op = "rms_norm", .one = norm_gpu<false>},
                             {.op = "rms_norm_grad", .one = norm_grad_gpu<false>},
                             {.op = "layer_norm", .one = norm_gpu<true>},
                             {.op = "layer_norm_grad", .one = norm_grad_gpu<true>}};

}  // namespace
}  // namespace hearth::ops
