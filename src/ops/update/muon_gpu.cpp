// Muon on a GPU; see muon_update.cpp for the method. Elementwise kernels update the momentum, normalize the
// direction x, and compute the polynomial a I + b g + c g^2 of g = x x^T; the matrix products are f32
// matmuls.
#include "ops/gpu_support.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int64_t kMaxParts = 256;

/// Shape [rows, columns] of a weight, and shape [small, wide] of its update direction x, which is transposed
/// if the weight has more rows than columns.
struct Matrix {
  int64_t rows, columns;
  int64_t small, wide;
  int64_t parts;  ///< number of partial sums of the squares of x
  HEARTH_FORMULA int64_t count() const { return rows * columns; }
  RT_DEVICE bool tall() const { return rows > columns; }
  /// Returns the index in x of element i of the weight.
  RT_DEVICE int64_t x_index(int64_t i) const { return tall() ? i % columns * rows + i / columns : i; }
};
Matrix matrix_of(const Shape& shape) {
  Matrix m{.rows = shape[0],
           .columns = shape[1],
           .small = std::min(shape[0], shape[1]),
           .wide = std::max(shape[0], shape[1]),
           .parts = 1};
  m.parts = std::clamp<int64_t>(ceil_div(m.count(), 4 * kBlockThreads), 1, kMaxParts);
  return m;
}

struct Space {
  float *x, *y, *gram, *square, *squares;
  std::byte* workspace;  ///< workspace of the matmuls

  Space(const Matrix& m, std::byte* base) : x(reinterpret_cast<float*>(base)) {
    y = x + m.count();
    gram = y + m.count();
    square = gram + m.small * m.small;
    squares = square + m.small * m.small;
    workspace = base + own_bytes(m);
  }
  /// Returns the bytes of the arrays before `workspace`.
  static int64_t own_bytes(const Matrix& m) {
    return (2 * m.count() + 2 * m.small * m.small + m.parts) * int64_t{sizeof(float)};
  }
};

struct Momentum {
  float momentum;
  bool nesterov;
};
/// Updates the momentum `buffer`, and writes the update direction to x and each block's sum of its squares to
/// squares[block].
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    make_direction(const T* grad, const float* factor, float* buffer, Momentum rule, Matrix matrix,
                   Space space) {
  if (*factor < 0) return;
  float sum = 0;
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride()) {
    const float g = *factor * rt::to_float(grad[i]);
    MuonOptions::move(g, rule.momentum, buffer[i]);
    const float d = rule.nesterov ? MuonOptions::nesterov_direction(g, rule.momentum, buffer[i]) : buffer[i];
    space.x[matrix.x_index(i)] = d;
    sum += d * d;
  }
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) space.squares[blockIdx.x] = sum;
}

/// Divides x by its Frobenius norm, which bounds all singular values by 1.
__global__ void __launch_bounds__(kBlockThreads)
    normalize(const float* factor, float eps, Matrix matrix, Space space) {
  if (*factor < 0) return;
  float sum = 0;
  for (int64_t part = threadIdx.x; part < matrix.parts; part += kBlockThreads) sum += space.squares[part];
  const float norm = sqrtf(rt::reduce_block(sum, rt::Add(), 0.0F));
  const float inverse = 1 / (norm > eps ? norm : eps);
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride()) space.x[i] *= inverse;
}

/// Computes square = a I + b gram + c square, in place.
__global__ void __launch_bounds__(kBlockThreads)
    make_polynomial(const float* gram, float* square, int64_t small) {
  for (int64_t i = first_element(); i < small * small; i += element_stride()) {
    const float one = i / small == i % small ? MuonOptions::kA : 0.0F;
    square[i] = one + MuonOptions::kB * gram[i] + MuonOptions::kC * square[i];
  }
}

__global__ void __launch_bounds__(kBlockThreads)
    move_param(float* param, const float* x, const float* lr, const float* factor, double weight_decay,
               double ratio, Matrix matrix) {
  if (*factor < 0) return;
  const auto decay_factor = static_cast<float>(1 - static_cast<double>(*lr) * weight_decay);
  const auto rate = static_cast<float>(static_cast<double>(*lr) * ratio);
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride())
    param[i] = decay_factor * param[i] - rate * x[matrix.x_index(i)];
}

/// The three matmuls of a Newton-Schulz step: gram = x x^T, its square, and a polynomial of gram times x.
struct Matmuls {
  MatmulKernel gram, square, apply;

  explicit Matmuls(const Matrix& matrix)
      : gram(shape_of(matrix.small, matrix.small, matrix.wide, true), DType::f32, DType::f32),
        square(shape_of(matrix.small, matrix.small, matrix.small, false), DType::f32, DType::f32),
        apply(shape_of(matrix.small, matrix.wide, matrix.small, false), DType::f32, DType::f32) {}
  int64_t workspace_bytes() const {
    return std::max({gram.workspace_bytes(), square.workspace_bytes(), apply.workspace_bytes()});
  }

 private:
  /// Returns the shape of the matmul [m, k] times [k, n] or, if `transposed`, times [n, k]^T.
  static MatmulShape shape_of(int64_t m, int64_t n, int64_t k, bool transposed) {
    return {.m = static_cast<int>(m),
            .n = static_cast<int>(n),
            .k = static_cast<int>(k),
            .a_row = k,
            .b_term = transposed ? 1 : n,
            .b_column = transposed ? k : 1,
            .c_row = n};
  }
};

/// Runs one Newton-Schulz step, x <- a x + (b g + c g^2) x with g = x x^T. The result is written to space.y,
/// then space.x and space.y are swapped.
void iterate(const Matrix& matrix, const Matmuls& matmuls, Space& space, void* stream) {
  const auto multiply = [&](const MatmulKernel& kernel, const float* a, const float* b, float* c) {
    kernel.launch(stream, {.a = a, .b = b, .c = c, .workspace = space.workspace});
  };
  multiply(matmuls.gram, space.x, space.x, space.gram);
  multiply(matmuls.square, space.gram, space.gram, space.square);
  rt::launch(make_polynomial, {num_stride_blocks(matrix.small * matrix.small), kBlockThreads}, stream,
             space.gram, space.square, matrix.small);
  multiply(matmuls.apply, space.square, space.x, space.y);
  std::swap(space.x, space.y);
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Matrix matrix = matrix_of(node.in_type(0).shape);
  const MuonOptions options = muon_options(node.attrs, matrix.rows, matrix.columns);
  const Matmuls matmuls(matrix);
  const auto run = [=](const KernelArgs& args) {
    void* stream = args.stream->handle();
    Space space(matrix, args.workspace);
    const auto* factor = input_of<float>(args, 3);
    const rt::Shape parts(matrix.parts, kBlockThreads);
    rt::launch(make_direction<T>, parts, stream, input_of<T>(args, 1), factor, output_of<float>(args, 1),
               Momentum{static_cast<float>(options.momentum), options.nesterov}, matrix, space);
    rt::launch(normalize, parts, stream, factor, static_cast<float>(options.eps), matrix, space);
    for (int step = 0; step < MuonOptions::kSteps; ++step) iterate(matrix, matmuls, space, stream);
    rt::launch(move_param, parts, stream, output_of<float>(args, 0), space.x, input_of<float>(args, 2),
               factor, options.weight_decay, options.ratio, matrix);
  };
  return {.run = run, .workspace_bytes = Space::own_bytes(matrix) + matmuls.workspace_bytes()};
}

ir::Kernel muon_update_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype, [&](auto grad) { return make<decltype(grad)>(node); });
}

const GpuKernels kKernels = {{.op = "muon_update", .one = muon_update_gpu}};

}  // namespace
}  // namespace hearth::ops
