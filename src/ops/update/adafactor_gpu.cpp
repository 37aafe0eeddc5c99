#include "ops/gpu_support.h"
#include "ops/update/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

using ir::KernelArgs;
using ir::NodeView;

/// Number of columns per piece; a block processes one piece of a row.
constexpr int64_t kPiece = 1024;
/// Minimum number of rows per partial sum of the squares of a column.
constexpr int64_t kPartRows = 32;
constexpr int64_t kMaxParts = 64;

/// Shape of a weight. A weight that is not a matrix is treated as one row, with an unfactored second moment
/// (one value per element).
struct Matrix {
  int64_t rows, columns;
  int64_t pieces;  ///< pieces per row
  int64_t parts;   ///< partial sums per column
  bool factored;
  HEARTH_FORMULA int64_t num_pieces() const { return rows * pieces; }
};
Matrix matrix_of(const ir::Type& type) {
  const bool factored = type.shape.rank() == 2;
  Matrix m{.rows = factored ? type.shape[0] : 1,
           .columns = factored ? type.shape[1] : type.shape.num_elements(),
           .factored = factored};
  m.pieces = ceil_div(m.columns, kPiece);
  m.parts = factored ? std::clamp<int64_t>(ceil_div(m.rows, kPartRows), 1, kMaxParts) : 0;
  return m;
}

/// Scalar values that the kernels of one update pass to later ones, in the workspace.
struct Shared {
  AdafactorStep step;
  float mean_of_rows;
  float size;  ///< root mean square of the weight
  float rate;
};
/// Workspace layout: Shared, two sums per piece (squares of the weight, squares of the gradient or
/// direction), then `parts` sums per column.
struct Space {
  Shared* shared;
  float *param_squares, *squares, *columns;

  Space(const Matrix& matrix, std::byte* base) : shared(reinterpret_cast<Shared*>(base)) {
    param_squares = reinterpret_cast<float*>(base + kSharedBytes);
    squares = param_squares + matrix.num_pieces();
    columns = squares + matrix.num_pieces();
  }
  static constexpr int64_t kSharedBytes = 64;
  static_assert(sizeof(Shared) <= kSharedBytes);
  static int64_t num_bytes(const Matrix& matrix) {
    return kSharedBytes + (2 * matrix.num_pieces() + matrix.parts * matrix.columns) * int64_t{sizeof(float)};
  }
};

/// Arrays of a weight: the weight, its gradient, the gradient factor, and the row and column moments. If the
/// second moment is unfactored, it is in `rows` and `columns` is null.
template <typename T>
struct Weight {
  float* param;
  const T* grad;
  const float* factor;
  float* rows;
  float* columns;
};

__global__ void __launch_bounds__(rt::kWarp)
    begin(AdafactorOptions options, const float* lr, const float* factor, const float* step_count,
          Space space) {
  space.shared->step = adafactor_step(options, *lr, *factor, *step_count);
}

RT_DEVICE int64_t piece_begin(const Matrix& m) {
  return static_cast<int64_t>(blockIdx.x) / m.pieces * m.columns +
         static_cast<int64_t>(blockIdx.x) % m.pieces * kPiece;
}
RT_DEVICE int64_t piece_end(const Matrix& m) {
  const int64_t row_end = (static_cast<int64_t>(blockIdx.x) / m.pieces + 1) * m.columns;
  const int64_t end = piece_begin(m) + kPiece;
  return end < row_end ? end : row_end;
}

/// Sums the squares of the weight and of its gradient per piece, and updates the second moment if it is
/// unfactored. One block per piece.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) measure(Weight<T> weight, Matrix matrix, Space space) {
  if (*weight.factor < 0) return;
  const auto of_new = static_cast<float>(space.shared->step.weight);
  float param_squares = 0, squares = 0;
  for (int64_t i = piece_begin(matrix) + threadIdx.x; i < piece_end(matrix); i += kBlockThreads) {
    const float param = weight.param[i], g = *weight.factor * rt::to_float(weight.grad[i]);
    param_squares += param * param;
    squares += g * g;
    if (!matrix.factored) weight.rows[i] += of_new * (g * g - weight.rows[i]);
  }
  param_squares = rt::reduce_block(param_squares, rt::Add(), 0.0F);
  squares = rt::reduce_block(squares, rt::Add(), 0.0F);
  if (threadIdx.x != 0) return;
  space.param_squares[blockIdx.x] = param_squares;
  space.squares[blockIdx.x] = squares;
}

/// Sums the squares of the gradient over every gridDim.y-th row; one thread per column and part.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    measure_columns(Weight<T> weight, Matrix matrix, Space space) {
  const int64_t column = first_element();
  if (*weight.factor < 0 || column >= matrix.columns) return;
  float sum = 0;
  for (int64_t row = blockIdx.y; row < matrix.rows; row += gridDim.y) {
    const float g = *weight.factor * rt::to_float(weight.grad[row * matrix.columns + column]);
    sum += g * g;
  }
  space.columns[blockIdx.y * matrix.columns + column] = sum;
}

/// Updates the row and column moments with the means of squared gradients. One thread per row; later threads
/// process one column each.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads) move_moments(Weight<T> weight, Matrix matrix, Space space) {
  if (*weight.factor < 0) return;
  const auto of_new = static_cast<float>(space.shared->step.weight);
  const int64_t row = first_element(), column = row - matrix.rows;
  if (row < matrix.rows) {
    float sum = 0;
    for (int64_t p = 0; p < matrix.pieces; ++p) sum += space.squares[row * matrix.pieces + p];
    weight.rows[row] += of_new * (sum / static_cast<float>(matrix.columns) - weight.rows[row]);
  } else if (column < matrix.columns) {
    float sum = 0;
    for (int64_t p = 0; p < matrix.parts; ++p) sum += space.columns[p * matrix.columns + column];
    weight.columns[column] += of_new * (sum / static_cast<float>(matrix.rows) - weight.columns[column]);
  }
}

/// Returns the sum of an array in all threads of the block that calls it.
RT_DEVICE float sum_of(const float* values, int64_t count) {
  float sum = 0;
  for (int64_t i = threadIdx.x; i < count; i += kBlockThreads) sum += values[i];
  return rt::reduce_block(sum, rt::Add(), 0.0F);
}
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    finish_moments(Weight<T> weight, Matrix matrix, AdafactorOptions options, Space space) {
  if (*weight.factor < 0) return;
  const float size = sum_of(space.param_squares, matrix.num_pieces());
  const float rows = matrix.factored ? sum_of(weight.rows, matrix.rows) : 0.0F;
  if (threadIdx.x != 0) return;
  const float mean = rows / static_cast<float>(matrix.rows), min_mean = static_cast<float>(options.eps1);
  space.shared->mean_of_rows = mean > min_mean ? mean : min_mean;
  space.shared->size = sqrtf(size / static_cast<float>(matrix.rows * matrix.columns));
}

/// Returns element i of the update direction: the gradient divided by the square root of its estimated second
/// moment.
template <typename T>
RT_DEVICE float direction(const Weight<T>& weight, const Matrix& matrix, const Shared& shared, int64_t i) {
  const int64_t row = static_cast<int64_t>(blockIdx.x) / matrix.pieces;
  const float estimate =
      matrix.factored ? weight.rows[row] / shared.mean_of_rows * weight.columns[i - row * matrix.columns]
                      : weight.rows[i];
  const auto floor = static_cast<float>(shared.step.floor);
  return *weight.factor * rt::to_float(weight.grad[i]) / sqrtf(estimate > floor ? estimate : floor);
}

/// Sums the squares of the update direction per piece; one block per piece.
template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    measure_direction(Weight<T> weight, Matrix matrix, Space space) {
  if (*weight.factor < 0) return;
  const Shared shared = *space.shared;
  float sum = 0;
  for (int64_t i = piece_begin(matrix) + threadIdx.x; i < piece_end(matrix); i += kBlockThreads) {
    const float d = direction(weight, matrix, shared, i);
    sum += d * d;
  }
  sum = rt::reduce_block(sum, rt::Add(), 0.0F);
  if (threadIdx.x == 0) space.squares[blockIdx.x] = sum;
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads)
    choose_rate(Weight<T> weight, Matrix matrix, AdafactorOptions options, Space space) {
  if (*weight.factor < 0) return;
  const float squares = sum_of(space.squares, matrix.num_pieces());
  if (threadIdx.x != 0) return;
  const double mean = static_cast<double>(squares) / static_cast<double>(matrix.rows * matrix.columns);
  const double clip = sqrt(mean) / options.clip, size = space.shared->size;
  space.shared->rate = static_cast<float>((size > options.eps2 ? size : options.eps2) *
                                          space.shared->step.rate / (clip > 1 ? clip : 1));
}

template <typename T>
__global__ void __launch_bounds__(kBlockThreads) move_param(Weight<T> weight, Matrix matrix, Space space) {
  if (*weight.factor < 0) return;
  const Shared shared = *space.shared;
  const auto decay_factor = static_cast<float>(shared.step.decay_factor);
  for (int64_t i = piece_begin(matrix) + threadIdx.x; i < piece_end(matrix); i += kBlockThreads)
    weight.param[i] = decay_factor * weight.param[i] - shared.rate * direction(weight, matrix, shared, i);
}

template <typename T>
ir::Kernel make(const NodeView& node) {
  const Matrix matrix = matrix_of(node.in_type(0));
  const auto run = [matrix, options = adafactor_options(node.attrs)](const KernelArgs& args) {
    void* stream = args.stream->handle();
    const Space space(matrix, args.workspace);
    const Weight<T> weight{output_of<float>(args, 0), input_of<T>(args, 1), input_of<float>(args, 3),
                           output_of<float>(args, 1), matrix.factored ? output_of<float>(args, 2) : nullptr};
    const rt::Shape one(1, kBlockThreads), per_piece(matrix.num_pieces(), kBlockThreads);
    rt::launch(begin, {1, 1}, stream, options, input_of<float>(args, 2), weight.factor,
               input_of<float>(args, 6), space);
    rt::launch(measure<T>, per_piece, stream, weight, matrix, space);
    if (matrix.factored) {
      const auto blocks = static_cast<unsigned>(ceil_div(matrix.columns, kBlockThreads));
      rt::launch(measure_columns<T>,
                 {rt::Dim3{blocks, static_cast<unsigned>(matrix.parts), 1}, rt::Dim3{kBlockThreads, 1, 1}},
                 stream, weight, matrix, space);
      rt::launch(move_moments<T>, {ceil_div(matrix.rows + matrix.columns, kBlockThreads), kBlockThreads},
                 stream, weight, matrix, space);
    }
    rt::launch(finish_moments<T>, one, stream, weight, matrix, options, space);
    rt::launch(measure_direction<T>, per_piece, stream, weight, matrix, space);
    rt::launch(choose_rate<T>, one, stream, weight, matrix, options, space);
    rt::launch(move_param<T>, per_piece, stream, weight, matrix, space);
  };
  return {.run = run, .workspace_bytes = Space::num_bytes(matrix)};
}

ir::Kernel adafactor_update_gpu(const NodeView& node) {
  return with_storage_type(node.in_type(1).dtype, [&](auto grad) { return make<decltype(grad)>(node); });
}

const GpuKernels kKernels = {{.op = "adafactor_update", .one = adafactor_update_gpu}};

}  // namespace
}  // namespace hearth::ops
