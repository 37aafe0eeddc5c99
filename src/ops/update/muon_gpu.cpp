#include "ops/matmul/f32_product.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

constexpr int64_t kMostParts = 256;

/// x is the direction with no more rows than columns: small x wide.
struct Matrix {
  int64_t rows, columns;
  int64_t small, wide;
  int64_t parts;  ///< of the sum of squares
  HEARTH_FORMULA int64_t count() const { return rows * columns; }
  RT_DEVICE bool tall() const { return rows > columns; }
  /// Where element `i` of the weight lies in x.
  RT_DEVICE int64_t place(int64_t i) const { return tall() ? i % columns * rows + i / columns : i; }
};
Matrix matrix_of(const Shape& shape) {
  Matrix m{.rows = shape[0],
           .columns = shape[1],
           .small = std::min(shape[0], shape[1]),
           .wide = std::max(shape[0], shape[1]),
           .parts = 1};
  m.parts = std::clamp<int64_t>(divided_up(m.count(), 4 * kBlockThreads), 1, kMostParts);
  return m;
}

struct Space {
  float *x, *y, *gram, *polynomial, *squares;

  Space(const Matrix& m, std::byte* base) : x(reinterpret_cast<float*>(base)) {
    y = x + m.count();
    gram = y + m.count();
    polynomial = gram + m.small * m.small;
    squares = polynomial + m.small * m.small;
  }
  static int64_t num_bytes(const Matrix& m) {
    return (2 * m.count() + 2 * m.small * m.small + m.parts) * int64_t{sizeof(float)};
  }
};

struct Momentum {
  float momentum;
  bool nesterov;
};
/// Moves the momentum; x gets the direction, squares[block] a part of its squares' sum.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    make_direction(const T* grad, const float* factor, float* buffer, Momentum rule, Matrix matrix,
                   Space space) {
  if (*factor < 0) return;
  float sum = 0;
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride()) {
    const float g = *factor * rt::to_float(grad[i]);
    MuonOptions::move(g, rule.momentum, buffer[i]);
    const float d = rule.nesterov ? MuonOptions::look_ahead(g, rule.momentum, buffer[i]) : buffer[i];
    space.x[matrix.place(i)] = d;
    sum += d * d;
  }
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) space.squares[blockIdx.x] = sum;
}

/// Divides by the Frobenius norm, which bounds every singular value.
__global__ void __launch_bounds__(kBlockThreads)
    normalise(const float* factor, float eps, Matrix matrix, Space space) {
  if (*factor < 0) return;
  float sum = 0;
  for (int64_t part = threadIdx.x; part < matrix.parts; part += kBlockThreads) sum += space.squares[part];
  const float norm = sqrtf(rt::reduce_block(sum, rt::Add(), 0.0F));
  const float inverse = 1 / (norm > eps ? norm : eps);
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride()) space.x[i] *= inverse;
}

/// out = of_product left right + of_added added, right [k, n] or, transposed, [n, k].
struct Product {
  int m, n, k;
  float of_product, of_added;
};
template <bool transposed>
__global__ void __launch_bounds__(kBlockThreads)
    multiply(const float* factor, Product product, const float* left, const float* right, const float* added,
             float* out) {
  if (*factor < 0) return;
  const int64_t n = product.n, k = product.k;
  multiply_tile<transposed>(
      product.m, product.n, product.k, [=](int64_t i, int64_t p) { return left[i * k + p]; },
      [=](int64_t p, int64_t j) { return transposed ? right[j * k + p] : right[p * n + j]; },
      [=](int64_t i, int64_t j, float sum) {
        const float value = product.of_product * sum;
        out[i * n + j] = added == nullptr ? value : value + product.of_added * added[i * n + j];
      });
}

__global__ void __launch_bounds__(kBlockThreads)
    move_param(float* param, const float* x, const float* lr, const float* factor, double weight_decay,
               double ratio, Matrix matrix) {
  if (*factor < 0) return;
  const auto keep = static_cast<float>(1 - static_cast<double>(*lr) * weight_decay);
  const auto rate = static_cast<float>(static_cast<double>(*lr) * ratio);
  for (int64_t i = first_element(); i < matrix.count(); i += element_stride())
    param[i] = keep * param[i] - rate * x[matrix.place(i)];
}

/// x becomes a x + (b g + c g^2) x, g = x x^T; it lies where y was.
void iterate(const Matrix& matrix, const float* factor, Space& space, void* stream) {
  const auto small = static_cast<int>(matrix.small), wide = static_cast<int>(matrix.wide);
  const rt::Shape square = product_shape(small, small);
  rt::launch(multiply<true>, square, stream, factor, Product{small, small, wide, 1, 0}, space.x, space.x,
             nullptr, space.gram);
  rt::launch(multiply<false>, square, stream, factor,
             Product{small, small, small, MuonOptions::kC, MuonOptions::kB}, space.gram, space.gram,
             space.gram, space.polynomial);
  rt::launch(multiply<false>, product_shape(small, wide), stream, factor,
             Product{small, wide, small, 1, MuonOptions::kA}, space.polynomial, space.x, space.x, space.y);
  std::swap(space.x, space.y);
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Matrix matrix = matrix_of(node.in_type(0).shape);
  const MuonOptions options = muon_options(node.attrs, matrix.rows, matrix.columns);
  const auto run = [=](const KernelArgs& args) {
    void* stream = args.stream->handle();
    Space space(matrix, args.workspace);
    const auto* factor = input_of<float>(args, 3);
    const rt::Shape parts(matrix.parts, kBlockThreads);
    rt::launch(make_direction<T>, parts, stream, input_of<T>(args, 1), factor, output_of<float>(args, 1),
               Momentum{static_cast<float>(options.momentum), options.nesterov}, matrix, space);
    rt::launch(normalise, parts, stream, factor, static_cast<float>(options.eps), matrix, space);
    for (int step = 0; step < MuonOptions::kSteps; ++step) iterate(matrix, factor, space, stream);
    rt::launch(move_param, parts, stream, output_of<float>(args, 0), space.x, input_of<float>(args, 2),
               factor, options.weight_decay, options.ratio, matrix);
  };
  return {.run = run, .workspace_bytes = Space::num_bytes(matrix)};
}

}  // namespace

ir::Kernel muon_update_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype, [&](auto grad) { return make<decltype(grad)>(node); });
}

}  // namespace hearth::ops
