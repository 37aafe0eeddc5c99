#include "ops/loss/dpo_formula.h"
#include "ops/loss/loss.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

DpoFormula formula_of(const NodeView& node) {
  return {.beta = node.attrs.real_or("beta", 0.1), .smoothing = node.attrs.real_or("smoothing", 0)};
}
int64_t num_pairs(const NodeView& node) { return node.in_type(0).shape[0] / 2; }

template <typename T>
void losses(const DpoFormula& formula, int64_t count, const T* logps, const T* reference, T* out) {
  for (int64_t i = 0; i < count; ++i)
    out[i] = static_cast<T>(formula.loss(formula.margin(logps, reference, i)));
}
template <typename T>
void gradients(const DpoFormula& formula, int64_t count, const T* logps, const T* reference, const T* dlosses,
               T* out) {
  for (int64_t i = 0; i < count; ++i) {
    const double slope = static_cast<double>(dlosses[i]) * formula.slope(formula.margin(logps, reference, i));
    out[2 * i] = static_cast<T>(slope);
    out[2 * i + 1] = static_cast<T>(-slope);
  }
}

std::string check(const NodeView& node) {
  const Type& logps = node.in_type(0);
  if (logps.dtype != DType::f32 || logps.shape.rank() != 1 || logps.shape[0] % 2 != 0)
    return fmt::format("expected the log-probabilities to be f32[2 * pairs], got {}", to_string(logps));
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
  return {.run = [formula = formula_of(node), count = num_pairs(node)](const KernelArgs& args) {
    losses(formula, count, args.input<float>(0), args.input<float>(1), args.output<float>(0));
  }};
}
Kernel grad_kernel(const NodeView& node) {
  return {.run = [formula = formula_of(node), count = num_pairs(node)](const KernelArgs& args) {
    gradients(formula, count, args.input<float>(0), args.input<float>(1), args.input<float>(2),
              args.output<float>(0));
  }};
}
void reference(const ReferenceArgs& args) {
  losses(formula_of(args.node), num_pairs(args.node), args.in[0].data(), args.in[1].data(),
         args.out[0].data());
}
void grad_reference(const ReferenceArgs& args) {
  gradients(formula_of(args.node), num_pairs(args.node), args.in[0].data(), args.in[1].data(),
            args.in[2].data(), args.out[0].data());
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
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.in.push_back(normal({sample.in[0].type.shape[0] / 2}));
  return result;
}

}  // namespace

const OpDef dpo_loss{.name = "dpo_loss",
                     .doc =
                         "dpo_loss(logps f32 [2P], reference f32 [2P]){beta, smoothing}: losses [P] of pairs "
                         "{chosen, rejected}",
                     .inputs = {"logps", "reference"},
                     .infer = infer,
                     .vjp = vjp,
                     .cpu = kernel,
                     .gpu = true,
                     .reference = reference,
                     .precision = ir::Precision::full,
                     .samples = samples};

const OpDef dpo_loss_grad{.name = "dpo_loss_grad",
                          .doc = "dpo_loss_grad(logps, reference, dlosses): dlogps",
                          .inputs = {"logps", "reference", "dlosses"},
                          .infer = infer_grad,
                          .no_vjp_because = kNoSecondDerivatives,
                          .cpu = grad_kernel,
                          .gpu = true,
                          .reference = grad_reference,
                          .precision = ir::Precision::full,
                          .samples = grad_samples};

}  // namespace hearth::ops
