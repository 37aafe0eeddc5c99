#include "ops/matmul/orthogonalize.h"

#include "ops/gpu_support.h"
#include "ops/matmul/matmul.h"

namespace hearth::ops {
namespace {

/// The matrix, which a single thread block orthonormalizes; one block suffices for few columns.
struct Columns {
  float* matrix;
  int64_t num_rows;
  int64_t num_columns;

  RT_DEVICE float& at(int64_t row, int64_t column) const { return matrix[row * num_columns + column]; }
  RT_DEVICE float product(int64_t a, int64_t b) const {
    float sum = 0;
    for (int64_t i = threadIdx.x; i < num_rows; i += kBlockThreads) sum += at(i, a) * at(i, b);
    return rt::reduce_block(sum, rt::Add(), 0.0F);
  }
  RT_DEVICE float subtract_projections(int64_t column) const {
    float left = 0;
    for (int pass = 0; pass < kNumPasses; ++pass) {
      for (int64_t other = 0; other < column; ++other) {
        const float along = product(column, other);
        for (int64_t i = threadIdx.x; i < num_rows; i += kBlockThreads) at(i, column) -= along * at(i, other);
      }
      if (pass == 0) left = product(column, column);
    }
    return left;
  }
};

__global__ void __launch_bounds__(kBlockThreads) orthogonalize_columns(const float* in, Columns columns) {
  // Each thread always accesses the same rows, so that threads synchronize only in reductions.
  for (int64_t i = threadIdx.x; i < columns.num_rows; i += kBlockThreads) {
    for (int64_t column = 0; column < columns.num_columns; ++column)
      columns.at(i, column) = in[i * columns.num_columns + column];
  }
  for (int64_t column = 0; column < columns.num_columns; ++column) {
    const float whole = columns.product(column, column);
    if (!(columns.subtract_projections(column) > kMinRemainingNorm * whole)) {
      for (int64_t i = threadIdx.x; i < columns.num_rows; i += kBlockThreads)
        columns.at(i, column) = replacement_element(i, column);
      columns.subtract_projections(column);
    }
    const float inverse = 1 / sqrtf(columns.product(column, column));
    for (int64_t i = threadIdx.x; i < columns.num_rows; i += kBlockThreads) columns.at(i, column) *= inverse;
  }
}

ir::Kernel orthogonalize_gpu(const ir::NodeView& node) {
  const Shape shape = node.in_type(0).shape;
  return {.run = [shape](const ir::KernelArgs& args) {
    rt::launch(orthogonalize_columns, {1, kBlockThreads}, args.stream->handle(), input_of<float>(args, 0),
               Columns{output_of<float>(args, 0), shape[0], shape[1]});
  }};
}

const GpuKernels kKernels = {{.op = "orthogonalize", .one = orthogonalize_gpu}};

}  // namespace
}  // namespace hearth::ops
