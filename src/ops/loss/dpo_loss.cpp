#include <cmath>

#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// In double, because it takes small differences of large log-probabilities.
struct Formula {
  double beta, smoothing;
  int64_t num_pairs;

  explicit Formula(const NodeView& node)
      : beta(node.attrs.real_or("beta", 0.1)),
        smoothing(node.attrs.real_or("smoothing", 0)),
        num_pairs(node.in_type(0).shape[0] / 2) {}

  /// beta times how much more than the reference the policy prefers the chosen answer.
  template <typename T>
  double margin(const T* logps, const T* reference, int64_t pair) const {
    const auto gain = [&](int64_t row) {
      return static_cast<double>(logps[row]) - static_cast<double>(reference[row]);
    };
    return beta * (gain(2 * pair) - gain(2 * pair + 1));
  }
  template <typename T>
  void losses(const T* logps, const T* reference, T* out) const {
    for (int64_t i = 0; i < num_pairs; ++i) {
      const double x = margin(logps, reference, i);
      const double rest = std::log1p(std::exp(-std::abs(x)));
      out[i] = static_cast<T>((1 - smoothing) * std::max(-x, 0.0) + smoothing * std::max(x, 0.0) + rest);
    }
  }
  template <typename T>
  void gradients(const T* logps, const T* reference, const T* dlosses, T* out) const {
    for (int64_t i = 0; i < num_pairs; ++i) {
      const double sigmoid = 1 / (1 + std::exp(-margin(logps, reference, i)));
      const double slope = static_cast<double>(dlosses[i]) * beta * (sigmoid - (1 - smoothing));
      out[2 * i] = static_cast<T>(slope);
      out[2 * i + 1] = static_cast<T>(-slope);
    }
  }
};

std::string check(const NodeView& node) {
  const Type& logps = node.in_type(0);
  if (logps.dtype != DType::f32 || logps.shape.rank() != 1 || logps.shape[0] % 2 != 0)
    return fmt::format("expected log-probabilities f32[2P], got {}", to_string(logps));
  if (node.in_type(1) != logps)
    return fmt::format("expected the reference to be {}, got {}", to_string(logps),
                       to_string(node.in_type(1)));
  const double smoothing = node.attrs.real_or("smoothing", 0);
  if (smoothing >= 0 && smoothing < 0.5) return "";
  return fmt::format("expected smoothing in [0, 0.5), got {}", smoothing);
}
Type losses_type(const NodeView& node) { return f32_type({node.in_type(0).shape[0] / 2}); }

Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  return {.out = {losses_type(node)}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  if (node.in_type(2) != losses_type(node))
    return refuse_type("dlosses", to_string(losses_type(node)), node.in_type(2));
  return {.out = {node.in_type(0)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  return {.run = [formula = Formula(node)](const KernelArgs& args) {
    formula.losses(args.input<float>(0), args.input<float>(1), args.output<float>(0));
  }};
}
Kernel grad_kernel(const NodeView& node) {
  return {.run = [formula = Formula(node)](const KernelArgs& args) {
    formula.gradients(args.input<float>(0), args.input<float>(1), args.input<float>(2),
                      args.output<float>(0));
  }};
}
void reference(const ReferenceArgs& args) {
  Formula(args.node).losses(args.in[0].data(), args.in[1].data(), args.out[0].data());
}
void grad_reference(const ReferenceArgs& args) {
  Formula(args.node).gradients(args.in[0].data(), args.in[1].data(), args.in[2].data(), args.out[0].data());
}

std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  return {emit(context, "dpo_loss_grad", {node.inputs[0], node.inputs[1], context.grad_out[0]}, node.attrs),
          kNone};
}

Sample sample(int64_t pairs, double beta, double smoothing) {
  return {.in = {normal({2 * pairs}), normal({2 * pairs})},
          .attrs = {{"beta", beta}, {"smoothing", smoothing}}};
}
std::vector<Sample> samples() { return {sample(1, 0.1, 0), sample(7, 0.5, 0.2), sample(33, 40, 0.1)}; }
std::vector<Sample> grad_samples() {
  std::vector<Sample> made = samples();
  for (Sample& sample : made) sample.in.push_back(normal({sample.in[0].type.shape[0] / 2}));
  return made;
}

}  // namespace

const OpDef dpo_loss{
    .name = "dpo_loss",
    .doc =
        "dpo_loss(logps f32 [2P], reference f32 [2P]){beta, smoothing}: losses [P] of pairs, "
        "the chosen answer first",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .reference = reference,
    .precision = ir::Precision::full,
    .samples = samples};

const OpDef dpo_loss_grad{.name = "dpo_loss_grad",
                          .doc = "dpo_loss_grad(logps, reference, dlosses): dlogps",
                          .min_inputs = 3,
                          .max_inputs = 3,
                          .infer = infer_grad,
                          .no_vjp_because = kNoSecondDerivatives,
                          .cpu = grad_kernel,
                          .reference = grad_reference,
                          .precision = ir::Precision::full,
                          .samples = grad_samples};

}  // namespace hearth::ops
