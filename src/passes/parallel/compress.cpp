#include "passes/parallel/compress.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ir/kernel_group.h"
#include "ir/op_def.h"
#include "ir/state_name.h"
#include "ops/op_list.h"

/// PowerSGD sends rank * (rows + columns) numbers instead of rows * columns: one step of subspace iteration
/// per update, started from the right factor Q of the previous update. For each gradient: M = error +
/// gradient; P = M Q, all-reduced and orthogonalized; R = M^T P, all-reduced; the gradient becomes P R^T, and
/// Q becomes R; the error becomes M - P R'^T, where R' is this worker's R before it is all-reduced. All
/// workers compute the same gradient, because P and R are all-reduced; only their errors differ.
namespace hearth::passes {
namespace {

using ir::ValueId;

/// Returns the shape of a gradient as a matrix [rows, columns]: all axes but the last are rows.
Shape matrix_of(const Shape& shape) {
  if (shape.rank() < 2 || shape.back() == 0) return {0, 0};
  return {shape.num_elements() / shape.back(), shape.back()};
}

class Compress {
 public:
  Compress(TrainGraph& train, const CompressOptions& options)
      : train_(train), graph_(train.graph), options_(options) {}

  void run() {
    choose();
    for (ir::Node& node : std::exchange(graph_.nodes, {})) {
      const std::vector<ValueId> made = node.outputs;
      append(std::move(node));
      for (const ValueId value : made) {
        if (const auto found = chosen_.find(value); found != chosen_.end())
          rewritten_[value] = rewrite(value, found->second);
      }
    }
    std::vector<Shared> last;
    for (Shared& shared : train_.shared) {
      const auto found = rewritten_.find(shared.value);
      if (found == rewritten_.end()) continue;
      shared = found->second.shared;
      if (found->second.last.value != ir::kNone) last.push_back(found->second.last);
    }
    train_.shared.insert(train_.shared.end(), last.begin(), last.end());
    for (Gradient& gradient : train_.gradients) {
      if (const auto found = rewritten_.find(gradient.gradient); found != rewritten_.end())
        gradient.gradient = found->second.gradient;
    }
  }

 private:
  struct Rewritten {
    ValueId gradient = ir::kNone;  ///< value that replaces the gradient for its readers
    bool in_place = false;         ///< true if that value has the same storage as the gradient
    /// Value that is all-reduced instead of the gradient; `last`: value that is all-reduced after it.
    Shared shared = {};
    Shared last = {};
  };

  /// Selects the all-reduced gradients that are worth compressing, and stores the name of each one's weight.
  void choose() {
    for (const Gradient& gradient : train_.gradients) {
      const auto is_it = [&](const Shared& shared) { return shared.value == gradient.gradient; };
      if (std::ranges::any_of(train_.shared, is_it) && is_compressible(graph_.type(gradient.gradient).shape))
        chosen_[gradient.gradient] = graph_.value(gradient.parameter).name;
    }
  }

  bool is_compressible(const Shape& shape) const {
    if (options_.way != hearth::Compress::powersgd) return true;
    const Shape matrix = matrix_of(shape);
    const auto sent = static_cast<double>(options_.rank * (matrix[0] + matrix[1]));
    return sent > 0 && static_cast<double>(matrix.num_elements()) >= options_.min_ratio * sent;
  }

  void append(ir::Node node) {
    for (size_t k = 0; k < node.inputs.size(); ++k) {
      const auto found = rewritten_.find(node.inputs[k]);
      if (found == rewritten_.end()) continue;
      if (!overwrites(node, k) || found->second.in_place) node.inputs[k] = found->second.gradient;
    }
    for (const ValueId out : node.outputs)
      graph_.value(out).producer = static_cast<ir::NodeId>(graph_.nodes.size());
    graph_.nodes.push_back(std::move(node));
  }

  Rewritten rewrite(ValueId gradient, const std::string& name) {
    if (options_.way == hearth::Compress::fp8) return round_to_fp8(gradient, name);
    return options_.way == hearth::Compress::bf16 ? round(gradient, name) : factorise(gradient, name);
  }

  Rewritten round(ValueId gradient, const std::string& name) {
    const ValueId error = add_state(ir::StateKind::error, name, graph_.type(gradient).shape);
    const ValueId rounded = graph_.add(*ops::find_op("bf16_feedback"), {gradient, error}, {}, name)[0];
    return {.gradient = rounded, .in_place = true, .shared = {.value = rounded, .wire = DType::bf16}};
  }

  /// The scale must be the same on all workers, so that their sum of squares is all-reduced before the
  /// values.
  Rewritten round_to_fp8(ValueId gradient, const std::string& name) {
    const auto add = [&](const char* op, std::vector<ValueId> inputs) {
      return graph_.add(*ops::find_op(op), std::move(inputs), {}, name)[0];
    };
    const ValueId error = add_state(ir::StateKind::error, name, graph_.type(gradient).shape);
    const ValueId whole = add("accumulate", {error, gradient});
    const ValueId squares = add("sum_squares", {whole});
    const ValueId sent = add("fp8_feedback", {gradient, whole, squares});
    return {.gradient = add("fp8_restore", {sent, squares}),
            .shared = {.value = squares},
            .last = {.value = sent, .wire = DType::f8_e5m2, .stage = 1}};
  }

  Rewritten factorise(ValueId gradient, const std::string& name) {
    const Shape shape = graph_.type(gradient).shape, matrix = matrix_of(shape);
    const auto add = [&](const char* op, std::vector<ValueId> inputs, ir::Attrs attrs = {}) {
      return graph_.add1(*ops::find_op(op), std::move(inputs), std::move(attrs), name);
    };
    const auto viewed = [&](ValueId value, const Shape& as) {
      return add("reshape", {value}, {{"shape", std::vector<int64_t>(as.begin(), as.end())}});
    };
    const ir::Attrs transpose_a = {{"transpose_a", int64_t{1}}}, transpose_b = {{"transpose_b", int64_t{1}}};
    // Adding the gradient to the error buffer gives M. What remains after subtracting the sent part is the
    // next step's error.
    const ValueId error = add_state(ir::StateKind::error, name, matrix);
    const ValueId whole = add("accumulate", {error, viewed(gradient, matrix)});
    const ValueId factor = add_state(ir::StateKind::factor, name, {matrix[1], options_.rank});
    const ValueId left_sum = add("matmul", {whole, factor});
    const ValueId left = add("orthogonalize", {left_sum});
    // A copy of the right factor is all-reduced, because the error is computed from this worker's right
    // factor.
    const ValueId minus_right = add("neg", {add("matmul", {whole, left}, transpose_a)});
    const ValueId right_sum = add("neg", {minus_right});
    add("accumulate", {whole, add("matmul", {left, minus_right}, transpose_b)});
    add("accumulate", {add("zero", {factor}), right_sum});
    const ValueId sum = add("matmul", {left, right_sum}, transpose_b);
    return {.gradient = viewed(sum, shape),
            .shared = {.value = left_sum},
            .last = {.value = right_sum, .stage = 1}};
  }

  ValueId add_state(ir::StateKind kind, const std::string& weight, const Shape& shape) {
    return graph_.add_value(ir::spell(kind, weight), {.dtype = DType::f32, .shape = shape}, ir::Role::state);
  }

  TrainGraph& train_;
  ir::Graph& graph_;
  const CompressOptions& options_;
  std::map<ValueId, std::string> chosen_;
  std::map<ValueId, Rewritten> rewritten_;
};

}  // namespace

void compress(TrainGraph& train, const CompressOptions& options) {
  if (options.way != hearth::Compress::none) Compress(train, options).run();
}

}  // namespace hearth::passes
