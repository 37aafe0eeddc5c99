// Rounds a matrix to E4M3 values times a power of two for each block. Each kernel reads its block twice, for
// the largest magnitude and to round it; the second time it is usually in the L2 cache.
#include "base/e4m3.h"
#include "ops/gpu_support.h"
#include "ops/matmul/round_e4m3.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int kNumWarps = kBlockThreads / rt::kWarp;
/// Warps per thread block of the kernel with a scale per column.
constexpr int kColumnWarps = 16;

RT_DEVICE float larger_magnitude(float largest, float x) { return rt::larger(largest, e4m3_magnitude(x)); }

/// Scale of a block.
struct Scale {
  float scale, inverse;
  RT_DEVICE explicit Scale(float largest)
      : scale(e4m3_scale(e4m3_exponent(largest))), inverse(e4m3_inverse_scale(e4m3_exponent(largest))) {}

  template <typename T>
  RT_DEVICE T round(T x) const {
    return rt::from_float<T>(round_to_e4m3(rt::to_float(x), inverse, scale));
  }
};

/// Rounds with a scale for each `width` columns of a row; one warp per scale, n adjacent elements per lane.
template <typename T, int n>
__global__ void __launch_bounds__(kBlockThreads)
    round_rows(const T* x, T* y, int64_t rows, int64_t columns, int64_t width) {
  const int64_t per_row = (columns + width - 1) / width;
  const int64_t warps = static_cast<int64_t>(gridDim.x) * kNumWarps;
  for (int64_t i = first_element() / rt::kWarp; i < rows * per_row; i += warps) {
    const int64_t row_end = (i / per_row + 1) * columns;
    const int64_t begin = row_end - columns + i % per_row * width;
    const int64_t end = begin + width < row_end ? begin + width : row_end;
    float largest = 0;
    for (int64_t at = begin + rt::lane() * n; at < end; at += rt::kWarp * n) {
      const rt::Vec<T, n> values = load_before<n>(end, x, at);
      for (int e = 0; e < n; ++e) largest = larger_magnitude(largest, rt::to_float(values.at[e]));
    }
    const Scale scale(rt::reduce_warp(largest, rt::Max()));
    for (int64_t at = begin + rt::lane() * n; at < end; at += rt::kWarp * n) {
      rt::Vec<T, n> values = load_before<n>(end, x, at);
      for (int e = 0; e < n; ++e) values.at[e] = scale.round(values.at[e]);
      store_before(end, y, at, values);
    }
  }
}

/// Rounds with a scale per column; one lane per column, whose rows are distributed over the warps.
template <typename T>
__global__ void __launch_bounds__(kColumnWarps* rt::kWarp)
    round_columns(const T* x, T* y, int64_t rows, int64_t columns) {
  RT_SHARED(parts, float[kColumnWarps][rt::kWarp]);
  const int64_t column = static_cast<int64_t>(blockIdx.x) * rt::kWarp + rt::lane();
  const int warp = rt::warp();
  float largest = 0;
  if (column < columns) {
    for (int64_t row = warp; row < rows; row += kColumnWarps)
      largest = larger_magnitude(largest, rt::to_float(x[row * columns + column]));
  }
  parts[warp][rt::lane()] = largest;
  rt::sync_block();
  for (int i = 0; i < kColumnWarps; ++i) largest = rt::larger(largest, parts[i][rt::lane()]);
  const Scale scale(largest);
  if (column >= columns) return;
  for (int64_t row = warp; row < rows; row += kColumnWarps)
    y[row * columns + column] = scale.round(x[row * columns + column]);
}

/// Rounds with a scale for each block of height x width elements; one thread block per scale.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    round_blocks(const T* x, T* y, int64_t rows, int64_t columns, int64_t height, int64_t width) {
  const auto per_row = static_cast<int>((columns + width - 1) / width);
  const int block = static_cast<int>(blockIdx.x);
  const int64_t first_row = block / per_row * height, first_column = block % per_row * width;
  const int64_t end_row = first_row + height < rows ? first_row + height : rows;
  const int64_t end_column = first_column + width < columns ? first_column + width : columns;
  float largest = 0;
  for (int64_t row = first_row + rt::warp(); row < end_row; row += kNumWarps)
    for (int64_t column = first_column + rt::lane(); column < end_column; column += rt::kWarp)
      largest = larger_magnitude(largest, rt::to_float(x[row * columns + column]));
  const Scale scale(rt::reduce_block(largest, rt::Max(), 0));
  for (int64_t row = first_row + rt::warp(); row < end_row; row += kNumWarps)
    for (int64_t column = first_column + rt::lane(); column < end_column; column += rt::kWarp)
      y[row * columns + column] = scale.round(x[row * columns + column]);
}

/// Stores the largest magnitude of the elements of each thread block.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) find_largest(const T* x, float* largest, int64_t count) {
  float of_thread = 0;
  for (int64_t i = first_element(); i < count; i += element_stride())
    of_thread = larger_magnitude(of_thread, rt::to_float(x[i]));
  const float of_block = rt::reduce_block(of_thread, rt::Max(), 0);
  if (threadIdx.x == 0) largest[blockIdx.x] = of_block;
}
/// Rounds with one scale, of the maximum of `largest`, which has an element per thread block.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    round_tensor(const T* x, const float* largest, T* y, int64_t count) {
  float of_thread = 0;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(gridDim.x); i += kBlockThreads)
    of_thread = rt::larger(of_thread, largest[i]);
  const Scale scale(rt::reduce_block(of_thread, rt::Max(), 0));
  for (int64_t i = first_element(); i < count; i += element_stride()) y[i] = scale.round(x[i]);
}

template <typename T>
ir::Kernel tensor_kernel(int64_t count) {
  const int64_t num_blocks = num_stride_blocks(count);
  const auto run = [=](const KernelArgs& args) {
    auto* const largest = reinterpret_cast<float*>(args.workspace);
    const rt::Shape shape{num_blocks, kBlockThreads};
    rt::launch(find_largest<T>, shape, args.stream->handle(), input_of<T>(args, 0), largest, count);
    rt::launch(round_tensor<T>, shape, args.stream->handle(), input_of<T>(args, 0), largest,
               output_of<T>(args, 0), count);
  };
  return {.run = run, .workspace_bytes = num_blocks * static_cast<int64_t>(sizeof(float))};
}

template <typename T>
ir::Kernel rows_kernel(int64_t rows, int64_t columns, int64_t width) {
  constexpr int n = kWideMove<T>;
  const bool wide = columns % n == 0 && width % n == 0;
  const int64_t num_threads = rows * ceil_div(columns, width) * rt::kWarp;
  const auto run = [=](const KernelArgs& args) {
    rt::launch(wide ? round_rows<T, n> : round_rows<T, 1>, {num_stride_blocks(num_threads), kBlockThreads},
               args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0), rows, columns, width);
  };
  return {.run = run};
}

template <typename T>
ir::Kernel columns_kernel(int64_t rows, int64_t columns) {
  const auto run = [=](const KernelArgs& args) {
    rt::launch(round_columns<T>, {ceil_div(columns, rt::kWarp), kColumnWarps * rt::kWarp},
               args.stream->handle(), input_of<T>(args, 0), output_of<T>(args, 0), rows, columns);
  };
  return {.run = run};
}

template <typename T>
ir::Kernel blocks_kernel(int64_t rows, int64_t columns, int64_t height, int64_t width) {
  const int64_t num_blocks = ceil_div(rows, height) * ceil_div(columns, width);
  const auto run = [=](const KernelArgs& args) {
    rt::launch(round_blocks<T>, {num_blocks, kBlockThreads}, args.stream->handle(), input_of<T>(args, 0),
               output_of<T>(args, 0), rows, columns, height, width);
  };
  return {.run = run};
}

ir::Kernel round_e4m3_gpu(const NodeView& node) {
  const Shape& shape = node.in_type(0).shape;
  const int64_t rows = shape[0], columns = shape[1];
  const ScaleBlock block = scale_block(node.attrs);
  const auto kernel_of = [&](auto element) {
    using T = decltype(element);
    if (block.rows == 1) return rows_kernel<T>(rows, columns, block.columns == 0 ? columns : block.columns);
    if (block.rows == 0 && block.columns == 0) return tensor_kernel<T>(rows * columns);
    if (block.rows == 0) return columns_kernel<T>(rows, columns);
    return blocks_kernel<T>(rows, columns, block.rows, block.columns);
  };
  return node.in_type(0).dtype == DType::f32 ? kernel_of(float()) : kernel_of(rt::bf16());
}

const GpuKernels kKernels = {{.op = "round_e4m3", .one = round_e4m3_gpu}};

}  // namespace
}  // namespace hearth::ops
