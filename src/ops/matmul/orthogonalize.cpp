#include "ops/matmul/orthogonalize.h"

#include <cmath>

#include "ops/matmul/matmul.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Orthonormalizes the columns of a row-major matrix in place. Single-threaded, because there are few
/// columns.
template <typename T>
class GramSchmidt {
 public:
  GramSchmidt(T* matrix, int64_t num_rows, int64_t num_columns)
      : matrix_(matrix), num_rows_(num_rows), num_columns_(num_columns) {}

  void run() {
    for (int64_t column = 0; column < num_columns_; ++column) {
      const double whole = product(column, column);
      if (!(subtract_projections(column) > kMinRemainingNorm * whole)) {
        for (int64_t i = 0; i < num_rows_; ++i) at(i, column) = replacement_element(i, column);
        subtract_projections(column);
      }
      const double inverse = 1 / std::sqrt(product(column, column));
      for (int64_t i = 0; i < num_rows_; ++i) at(i, column) = static_cast<T>(at(i, column) * inverse);
    }
  }

 private:
  T& at(int64_t row, int64_t column) { return matrix_[row * num_columns_ + column]; }
  double product(int64_t a, int64_t b) {
    double sum = 0;
    for (int64_t i = 0; i < num_rows_; ++i) sum += static_cast<double>(at(i, a)) * at(i, b);
    return sum;
  }
  /// Subtracts from a column its projections on the earlier columns, kNumPasses times. Returns the squared
  /// norm of the column after the first pass.
  double subtract_projections(int64_t column) {
    double left = 0;
    for (int pass = 0; pass < kNumPasses; ++pass) {
      for (int64_t other = 0; other < column; ++other) {
        const double along = product(column, other);
        for (int64_t i = 0; i < num_rows_; ++i)
          at(i, column) = static_cast<T>(at(i, column) - along * at(i, other));
      }
      if (pass == 0) left = product(column, column);
    }
    return left;
  }

  T* matrix_;
  int64_t num_rows_;
  int64_t num_columns_;
};

Inferred infer(const NodeView& node) {
  const Type& type = node.in_type(0);
  if (type.dtype != DType::f32 || type.shape.rank() != 2 || type.shape[0] < type.shape[1])
    return refuse_type("the matrix", "f32 with no more columns than rows", type);
  return same_as_first(node);
}

Kernel cpu(const NodeView& node) {
  const Shape shape = node.in_type(0).shape;
  return {.run = [shape](const KernelArgs& args) {
    auto* matrix = args.output<float>(0);
    std::copy_n(args.input<float>(0), shape.num_elements(), matrix);
    GramSchmidt(matrix, shape[0], shape[1]).run();
  }};
}

void reference(const ReferenceArgs& args) {
  const Shape& shape = args.node.in_type(0).shape;
  args.out[0] = args.in[0];
  GramSchmidt(args.out[0].data(), shape[0], shape[1]).run();
}

Cost cost(const NodeView& node) {
  const Shape& shape = node.in_type(0).shape;
  const auto columns = static_cast<double>(shape[1]);
  return stream_cost(node, kNumPasses * 2 * columns);
}

std::vector<Sample> samples() {
  return {{.in = {normal({300, 4})}},
          {.in = {filled(SampleInput::Fill::zero, {41, 4})}},
          // All columns are equal.
          {.in = {filled(SampleInput::Fill::one, {4, 2})}},
          {.in = {normal({1, 1})}}};
}

}  // namespace

const OpDef orthogonalize{.name = "orthogonalize",
                          .doc = "orthogonalize(x [N, R], N >= R): an orthonormal basis of the columns of x",
                          .inputs = {"x"},
                          .infer = infer,
                          .no_vjp_because = "gradient compression runs after the backward pass",
                          .cpu = cpu,
                          .gpu = true,
                          .reference = reference,
                          .cost = cost,
                          .precision = ir::Precision::full,
                          .samples = samples};

}  // namespace hearth::ops
