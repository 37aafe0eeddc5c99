// Adafactor (Shazeer and Stern 2018, arXiv 1804.04235): the second moment of an n x m weight is stored as the
// means of its n rows and of its m columns, and estimated per element as row * column / mean of all rows. The
// first pass over the weight updates the row moments and sums squared gradients per column, the second
// computes the norm of the update direction for clipping, and the third applies the update.
#include <algorithm>
#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "base/threads.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

/// Shape of a weight. A weight that is not a matrix is treated as one row, with an unfactored second moment
/// (one value per element).
struct Matrix {
  int64_t rows;
  int64_t columns;
  bool factored;
  double count() const { return static_cast<double>(rows * columns); }
};
Matrix matrix_of(const Type& type) {
  if (type.shape.rank() == 2) return {type.shape[0], type.shape[1], true};
  return {1, type.shape.num_elements(), false};
}

HEARTH_CLONES void add_squares(const float* g, double* sums, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sums[i] += static_cast<double>(g[i] * g[i]);
}
HEARTH_CLONES void move_squares(const float* g, float weight, float* variance, int64_t count) {
  for (int64_t i = 0; i < count; ++i) variance[i] += weight * (g[i] * g[i] - variance[i]);
}
/// Divides g[i] by the square root of the larger of factor * variance[i] and `floor`.
HEARTH_CLONES void normalize(float* g, float factor, const float* variance, float floor, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float estimate = factor * variance[i];
    g[i] /= std::sqrt(estimate > floor ? estimate : floor);
  }
}
HEARTH_CLONES void move_param(const float* direction, float decay_factor, float rate, float* param,
                              int64_t count) {
  for (int64_t i = 0; i < count; ++i) param[i] = decay_factor * param[i] - rate * direction[i];
}
double square_sum(const float* row, int64_t count) {
  float sum = 0;
  cpu::simd().dot(1, 1, count, row, count, row, count, &sum, 1, 1);
  return static_cast<double>(sum);
}

/// Returns the bytes of one part's workspace: two sums, one sum per column (double), and one row (f32).
int64_t own_bytes(const Matrix& matrix) {
  return cpu::round_up(2 * int64_t{sizeof(double)} + matrix.columns * int64_t{sizeof(double) + sizeof(float)},
                       64);
}

class Run {
 public:
  Run(const Matrix& matrix, DType dtype, int parts, const AdafactorOptions& options, const KernelArgs& args)
      : matrix_(matrix),
        dtype_(dtype),
        parts_(parts),
        options_(options),
        args_(args),
        step_(adafactor_step(options, *args.input<float>(kRate), *args.input<float>(kFactor),
                             *args.input<float>(6))) {}

  void run() {
    for_parts([&](int part, Range rows) { measure(part, rows); });
    if (matrix_.factored) finish_columns();
    for_parts([&](int part, Range rows) {
      doubles(part)[1] = 0;
      for (int64_t r = rows.begin; r < rows.end; ++r)
        doubles(part)[1] += square_sum(direction(part, r), matrix_.columns);
    });
    const double size = std::sqrt(total(0) / matrix_.count());
    const double clip = std::max(1.0, std::sqrt(total(1) / matrix_.count()) / options_.clip);
    const auto rate = static_cast<float>(std::max(options_.eps2, size) * step_.rate / clip);
    for_parts([&](int part, Range rows) {
      for (int64_t r = rows.begin; r < rows.end; ++r)
        move_param(direction(part, r), static_cast<float>(step_.decay_factor), rate, param(r),
                   matrix_.columns);
    });
  }

 private:
  template <typename Body>
  void for_parts(Body body) const {
    args_.threads->for_parts(parts_, [&](int part) { body(part, split_range(matrix_.rows, parts_, part)); });
  }
  /// Returns a part's sums of squares: [0] of the weight, [1] of the update direction, [2 + c] of the
  /// gradient in column c.
  double* doubles(int part) const {
    return reinterpret_cast<double*>(args_.workspace + part * own_bytes(matrix_));
  }
  float* scratch(int part) const { return reinterpret_cast<float*>(doubles(part) + 2 + matrix_.columns); }
  float* param(int64_t row) const { return args_.output<float>(0) + row * matrix_.columns; }
  double total(int index) const {
    double sum = 0;
    for (int part = 0; part < parts_; ++part) sum += doubles(part)[index];
    return sum;
  }

  const float* gradient(int part, int64_t row) const {
    float* g = scratch(part);
    const float* read = cpu::as_f32(dtype_, args_.in[kGrad], row * matrix_.columns, matrix_.columns, g);
    cpu::scale_row(read, static_cast<float>(step_.factor), g, matrix_.columns);
    return g;
  }

  /// Updates the row moments of `rows` (or an unfactored second moment), and sums the squares of the weight
  /// and, per column, of the gradient.
  void measure(int part, Range rows) {
    double* sums = doubles(part);
    std::fill_n(sums, 2 + matrix_.columns, 0.0);
    for (int64_t r = rows.begin; r < rows.end; ++r) {
      const float* g = gradient(part, r);
      sums[0] += square_sum(param(r), matrix_.columns);
      float* moment = args_.output<float>(1);
      if (!matrix_.factored) {
        move_squares(g, static_cast<float>(step_.weight), moment, matrix_.columns);
        continue;
      }
      const double mean = square_sum(g, matrix_.columns) / static_cast<double>(matrix_.columns);
      moment[r] += static_cast<float>(step_.weight * (mean - static_cast<double>(moment[r])));
      add_squares(g, sums + 2, matrix_.columns);
    }
  }

  void finish_columns() {
    for (int64_t c = 0; c < matrix_.columns; ++c) {
      float& moment = args_.output<float>(2)[c];
      const double mean = total(static_cast<int>(2 + c)) / static_cast<double>(matrix_.rows);
      moment += static_cast<float>(step_.weight * (mean - static_cast<double>(moment)));
    }
    double sum = 0;
    for (int64_t r = 0; r < matrix_.rows; ++r) sum += static_cast<double>(args_.output<float>(1)[r]);
    mean_of_rows_ = std::max(options_.eps1, sum / static_cast<double>(matrix_.rows));
  }

  /// Returns a row of the update direction: the gradient divided by the square root of its estimated second
  /// moment.
  const float* direction(int part, int64_t row) const {
    gradient(part, row);
    const float factor =
        matrix_.factored
            ? static_cast<float>(static_cast<double>(args_.output<float>(1)[row]) / mean_of_rows_)
            : 1.0F;
    const float* variance = args_.output<float>(matrix_.factored ? 2 : 1);
    normalize(scratch(part), factor, variance, static_cast<float>(step_.floor), matrix_.columns);
    return scratch(part);
  }

  Matrix matrix_;
  DType dtype_;
  int parts_;
  AdafactorOptions options_;
  const KernelArgs& args_;
  AdafactorStep step_;
  double mean_of_rows_ = 1;
};

/// Infers the outputs param, row moment and column moment. Inputs: param, grad, lr, factor, row moment (or
/// the unfactored moment), column moment (absent if unfactored), step_count.
Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, adafactor_update, {kGrad}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, adafactor_update, kRate, kFactor); !error.empty())
    return refuse(error);
  if (auto error = check_scalars(node, adafactor_update, 6, 6); !error.empty()) return refuse(error);
  const Type& type = node.in_type(kParam);
  const Matrix matrix = matrix_of(type);
  const Type first = matrix.factored ? f32_type({matrix.rows}) : type;
  if (node.in_type(4) != first) return refuse_type("the moment", to_string(first), node.in_type(4));
  if (node.has_input(5) != matrix.factored)
    return refuse("expected a column moment if and only if the weight is a matrix");
  if (!matrix.factored) return {.out = {type, first}, .error = ""};
  if (node.in_type(5) != f32_type({matrix.columns}))
    return refuse_type("the column moment", fmt::format("f32[{}]", matrix.columns), node.in_type(5));
  return {.out = {type, first, node.in_type(5)}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  const Matrix matrix = matrix_of(node.in_type(kParam));
  const DType dtype = node.in_type(kGrad).dtype;
  const int parts = num_sum_parts(matrix.rows, 4);
  const auto run = [=, options = adafactor_options(node.attrs)](const KernelArgs& args) {
    if (*args.input<float>(kFactor) < 0 || matrix.rows * matrix.columns == 0) return;
    Run(matrix, dtype, parts, options, args).run();
  };
  return {.run = run, .workspace_bytes = parts * own_bytes(matrix)};
}

void reference(const ReferenceArgs& args) {
  const AdafactorOptions options = adafactor_options(args.node.attrs);
  const double lr = args.in[kRate][0], factor = args.in[kFactor][0], count = args.in[6][0];
  const double weight = 1 / std::pow(count, -options.beta2_decay);
  const Matrix matrix = matrix_of(args.node.in_type(kParam));
  const auto rows = static_cast<size_t>(matrix.rows), columns = static_cast<size_t>(matrix.columns);
  for (size_t k = 0; k < args.out.size(); ++k) args.out[k] = args.in[k == 0 ? 0 : k + 3];
  std::vector<double> direction(rows * columns), row_mean(rows), column_mean(columns);
  for (size_t i = 0; i < direction.size(); ++i) {
    const double square = std::pow(factor * args.in[kGrad][i], 2);
    row_mean[i / columns] += square / static_cast<double>(columns);
    column_mean[i % columns] += square / static_cast<double>(rows);
  }
  const auto move = [&](std::vector<double>& moment, const std::vector<double>& now) {
    for (size_t i = 0; i < moment.size(); ++i) moment[i] += weight * (now[i] - moment[i]);
  };
  move(args.out[1], matrix.factored ? row_mean : column_mean);
  double mean = 0, squares = 0, size = 0;
  if (matrix.factored) move(args.out[2], column_mean);
  for (const double row : args.out[1]) mean += row / static_cast<double>(rows);
  for (size_t i = 0; i < direction.size(); ++i) {
    const double variance =
        matrix.factored ? args.out[1][i / columns] * args.out[2][i % columns] / std::max(mean, options.eps1)
                        : args.out[1][i];
    direction[i] = factor * args.in[kGrad][i] / std::sqrt(std::max(variance, options.eps1 * options.eps1));
    squares += direction[i] * direction[i];
    size += args.in[kParam][i] * args.in[kParam][i];
  }
  const double rate = std::max(options.eps2, std::sqrt(size / matrix.count())) *
                      std::min(lr, 1 / std::sqrt(count)) /
                      std::max(1.0, std::sqrt(squares / matrix.count()) / options.clip);
  for (size_t i = 0; i < direction.size(); ++i)
    args.out[0][i] = (1 - lr * options.weight_decay) * args.in[kParam][i] - rate * direction[i];
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& shape, DType dtype, double decay) {
    Sample result{.in = {normal(shape), normal(shape, dtype), positive({}), positive({})},
                  .attrs = {{"weight_decay", decay}}};
    const bool factored = shape.rank() == 2;
    result.in.push_back(factored ? positive({shape[0]}) : positive(shape));
    result.in.push_back(factored ? positive({shape[1]}) : absent());
    result.in.push_back(positive({}));
    return result;
  };
  return {sample({3, 7}, DType::f32, 0.01), sample({2053}, DType::f32, 0), sample({70, 1030}, DType::f16, 0),
          sample({9, 4}, DType::bf16, 0.1)};
}

}  // namespace

AdafactorOptions adafactor_options(const Attrs& attrs) {
  return {.beta2_decay = attrs.real_or("beta2_decay", -0.8),
          .eps1 = attrs.real_or("eps1", 1.1920928955078125e-7),
          .eps2 = attrs.real_or("eps2", 1e-3),
          .clip = attrs.real_or("clip", 1),
          .weight_decay = attrs.real("weight_decay")};
}

const OpDef adafactor_update{
    .name = "adafactor_update",
    .doc =
        "adafactor_update(param, grad, lr, factor, row_moment, column_moment?, step_count): "
        "torch.optim.Adafactor (arXiv 1804.04235), in place; the second moment of a vector is not factored",
    .inputs = {"param", "grad", "lr", "factor", "row_moment", "column_moment?", "step_count"},
    .infer = infer,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = cpu,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 16); },
    .precision = ir::Precision::full,
    .writes = {0, 4, 5},
    .samples = samples};

}  // namespace hearth::ops
