#include <cmath>
#include <limits>

#include "backend/cpu/rows.h"
#include "ops/loss/loss.h"
#include "ops/loss/row_blocks.h"

namespace hearth::ops {
namespace {

constexpr auto kNan = std::numeric_limits<float>::quiet_NaN();

/// Indices of the inputs of softmax_cross_entropy and of its gradient.
struct LossIn {
  enum : size_t { logits, labels, class_weights };
};
struct LossGradIn {
  enum : size_t { logits, labels, dlosses, class_weights };
};

/// Weights of the loss by label: 0 for the label `ignore`, NaN for an invalid label, otherwise the class
/// weight (default 1).
struct LabelWeights {
  int64_t num_classes;
  bool ignores;
  int64_t ignore;
  double smoothing;

  template <typename Weight>
  double of(int64_t label, Weight class_weight) const {
    if (ignores && label == ignore) return 0;
    if (label < 0 || label >= num_classes) return std::numeric_limits<double>::quiet_NaN();
    return class_weight(static_cast<size_t>(label));
  }
  /// Returns the weight of a label; `class_weights` [num_classes] may be null.
  float of(int64_t label, const float* class_weights) const {
    return static_cast<float>(of(label, [&](size_t k) {
      return class_weights == nullptr ? 1.0 : static_cast<double>(class_weights[k]);
    }));
  }
  bool is_class(int64_t label) const {
    return label >= 0 && label < num_classes && !(ignores && label == ignore);
  }
};
LabelWeights weights_of(const NodeView& node) {
  return {.num_classes = node.in_type(0).shape[1],
          .ignores = node.attrs.contains("ignore"),
          .ignore = node.attrs.integer_or("ignore", 0),
          .smoothing = node.attrs.real_or("smoothing", 0)};
}

std::string fault(const NodeView& node, size_t class_weights) {
  if (auto error = logits_fault(node); !error.empty()) return error;
  const Type wanted = f32_type({node.in_type(0).shape[1]});
  if (node.has_input(class_weights) && node.in_type(class_weights) != wanted)
    return fmt::format("expected class_weights to be {}, got {}", to_string(wanted),
                       to_string(node.in_type(class_weights)));
  const double smoothing = node.attrs.real_or("smoothing", 0);
  return smoothing >= 0 && smoothing < 1 ? ""
                                         : fmt::format("expected smoothing in [0, 1), got {}", smoothing);
}
Inferred infer(const NodeView& node) {
  if (auto error = fault(node, LossIn::class_weights); !error.empty()) return refuse(error);
  return {.out = {f32_type({node.in_type(0).shape[0]})}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = fault(node, LossGradIn::class_weights); !error.empty()) return refuse(error);
  if (node.in_type(LossGradIn::dlosses) != f32_type({node.in_type(0).shape[0]}))
    return refuse_type("dlosses", "f32[N]", node.in_type(LossGradIn::dlosses));
  return {.out = {node.in_type(0)}, .error = ""};
}

const float* class_weights_of(const KernelArgs& args, size_t index) {
  return args.in.size() > index ? args.input<float>(index) : nullptr;
}

/// Returns the kernel of the losses. With label smoothing s, the target probability is s / K for each of the
/// K classes, plus 1 - s for the label (arXiv 1512.00567).
Kernel kernel(const NodeView& node) {
  const RowBlocks all(node.in_type(0));
  const LabelWeights weights = weights_of(node);
  return all.kernel(node.num_threads, [=](const KernelArgs& args, const RowBlocks::Block& block) {
    all.read(block, args.in[LossIn::logits], block.columns);
    add_up_exponentials(block);
    std::fill_n(block.factor, block.rows, 0.0F);
    for (int64_t k = 0; k < block.width && weights.smoothing > 0; ++k)
      cpu::add_row(block.columns + k * block.stride, block.factor, block.rows);
    const auto s = static_cast<float>(weights.smoothing), num = static_cast<float>(block.width);
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t label = args.input<int32_t>(LossIn::labels)[block.begin + r];
      float loss = weights.of(label, class_weights_of(args, LossIn::class_weights));
      if (weights.is_class(label)) {
        const float total = block.row_max[r] + std::log(block.sum[r]);
        const float of_label = total - block.columns[label * block.stride + r];
        loss *= (1 - s) * of_label + s * (total - block.factor[r] / num);
      }
      args.output<float>(0)[block.begin + r] = loss;
    }
  });
}

/// Subtracts factor * smoothed target from `rows`, which are factor * softmax; sets rows to 0 for ignored
/// labels and to NaN for invalid ones.
void subtract_targets(const LabelWeights& weights, const RowBlocks::Block& block, const int32_t* labels,
                      float* rows) {
  const auto s = static_cast<float>(weights.smoothing), num = static_cast<float>(block.width);
  for (int64_t r = 0; r < block.rows; ++r, rows += block.width) {
    if (weights.ignores && labels[r] == weights.ignore) {
      std::fill_n(rows, block.width, 0.0F);
    } else if (!weights.is_class(labels[r])) {
      std::fill_n(rows, block.width, kNan);
    } else {
      rows[labels[r]] -= block.factor[r] * (1 - s);
      for (int64_t k = 0; k < block.width && s > 0; ++k) rows[k] -= block.factor[r] * (s / num);
    }
  }
}

Kernel grad_kernel(const NodeView& node) {
  const RowBlocks all(node.in_type(0));
  const LabelWeights weights = weights_of(node);
  return all.kernel(node.num_threads, [=](const KernelArgs& args, const RowBlocks::Block& block) {
    const int32_t* labels = args.input<int32_t>(LossGradIn::labels) + block.begin;
    const float* dlosses = args.input<float>(LossGradIn::dlosses) + block.begin;
    all.read(block, args.in[LossGradIn::logits], block.columns);
    add_up_exponentials(block);
    for (int64_t r = 0; r < block.rows; ++r) {
      block.factor[r] = dlosses[r] * weights.of(labels[r], class_weights_of(args, LossGradIn::class_weights));
      block.sum[r] = block.row_max[r] + std::log(block.sum[r]);
    }
    for (int64_t k = 0; k < block.width; ++k)
      cpu::simd().scaled_exp(block.columns + k * block.stride, block.sum, block.factor, block.rows, 0);
    all.write(block, block.columns, args.out[0],
              [&](float* rows) { subtract_targets(weights, block, labels, rows); });
  });
}

/// Calls row(r, pointer to its logits, label, weight, logsumexp of its logits) for each row.
template <typename Row>
void reference_rows(const ReferenceArgs& args, size_t class_weights, Row row) {
  const LabelWeights weights = weights_of(args.node);
  const auto width = static_cast<size_t>(weights.num_classes);
  for (size_t r = 0; r < args.in[1].size(); ++r) {
    const double* x = args.in[0].data() + r * width;
    const double row_max = *std::max_element(x, x + width);
    double sum = 0;
    for (size_t k = 0; k < width; ++k) sum += std::exp(x[k] - row_max);
    const auto label = static_cast<int64_t>(args.in[1][r]);
    const double weight = weights.of(
        label, [&](size_t k) { return args.node.has_input(class_weights) ? args.in[class_weights][k] : 1; });
    row(r, x, label, weight, row_max + std::log(sum));
  }
}
void reference(const ReferenceArgs& args) {
  const LabelWeights weights = weights_of(args.node);
  const auto width = static_cast<size_t>(weights.num_classes);
  const double s = weights.smoothing;
  reference_rows(args, LossIn::class_weights,
                 [&](size_t r, const double* x, int64_t label, double weight, double total) {
                   args.out[0][r] = weight;
                   if (!weights.is_class(label)) return;
                   double mean = 0;
                   for (size_t k = 0; k < width; ++k) mean += x[k] / static_cast<double>(width);
                   args.out[0][r] *= (1 - s) * (total - x[label]) + s * (total - mean);
                 });
}
void grad_reference(const ReferenceArgs& args) {
  const LabelWeights weights = weights_of(args.node);
  const auto width = static_cast<size_t>(weights.num_classes);
  const double s = weights.smoothing;
  reference_rows(args, LossGradIn::class_weights,
                 [&](size_t r, const double* x, int64_t label, double weight, double total) {
                   for (size_t k = 0; k < width; ++k) {
                     const double at_label = static_cast<int64_t>(k) == label ? 1 - s : 0;
                     args.out[0][r * width + k] =
                         args.in[LossGradIn::dlosses][r] * weight *
                         (std::exp(x[k] - total) - at_label - s / static_cast<double>(width));
                   }
                 });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  std::vector<ValueId> grads(node.inputs.size(), kNone);
  if (context.grad_out[0] == kNone) return grads;
  std::vector<ValueId> inputs = {node.inputs[LossIn::logits], node.inputs[LossIn::labels],
                                 context.grad_out[0]};
  if (node.inputs.size() > LossIn::class_weights) inputs.push_back(node.inputs[LossIn::class_weights]);
  grads[LossIn::logits] = emit(context, "softmax_cross_entropy_grad", inputs, node.attrs);
  return grads;
}

Cost cost(const NodeView& node) { return stream_cost(node, 8); }

std::vector<Sample> samples() {
  const auto with = [](double smoothing, int64_t ignore) {
    return Attrs{{"smoothing", smoothing}, {"ignore", ignore}};
  };
  const auto plain = [](double smoothing) { return Attrs{{"smoothing", smoothing}}; };
  return {{.in = {normal({7, 10}), labels(7, 10)}, .attrs = plain(0)},
          {.in = {normal({5, 1003}), labels(5, 1003)}, .attrs = plain(0.1)},
          {.in = {normal({3, 1300}), labels(3, 1300)}, .attrs = plain(0.1)},
          {.in = {normal({3, 1300}, DType::bf16), labels_or_none(3, 1300)}, .attrs = with(0, -1)},
          {.in = {normal({6, 9}, DType::bf16), labels(6, 9)}, .attrs = plain(0)},
          {.in = {normal({9, 33}, DType::f16), labels(9, 33)}, .attrs = plain(0)},
          {.in = {normal({150, 2}), labels_or_none(150, 2), positive({2})}, .attrs = with(0, -1)},
          {.in = {normal({83, 21}), labels(83, 21), positive({21})}, .attrs = with(0.1, 3)},
          {.in = {normal({40, 3}, DType::bf16), labels(40, 3), positive({3})}, .attrs = with(0, 0)}};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result)
    sample.in.insert(sample.in.begin() + LossGradIn::dlosses, normal(sample.in[1].type.shape));
  return result;
}

}  // namespace

const OpDef softmax_cross_entropy{
    .name = "softmax_cross_entropy",
    .doc =
        "losses f32 [N] of logits [N, K] and labels i32 [N], with label smoothing; times the class weight "
        "f32 [K] of the label; 0 for the label `ignore`",
    .inputs = {"logits", "labels", "class_weights?"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = samples};

const OpDef softmax_cross_entropy_grad{
    .name = "softmax_cross_entropy_grad",
    .doc = "softmax_cross_entropy_grad(logits, labels, dlosses [N], class_weights?): dlogits",
    .inputs = {"logits", "labels", "dlosses", "class_weights?"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .samples = grad_samples};

}  // namespace hearth::ops
