#include "backend/cpu/clones.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void step_run(const LionRule& rule, const float* grad, float* param, float* m, int64_t count) {
  const LionRule s = rule;
  for (int64_t i = 0; i < count; ++i) s.move(grad[i], param[i], m[i]);
}

Kernel cpu(const NodeView& node) {
  const auto run = [gradient = node.in_type(kGrad),
                    rule = lion_rule(node.attrs)](const KernelArgs& args) mutable {
    rule.begin(*args.input<float>(kRate), *args.input<float>(kFactor));
    if (rule.factor < 0) return;
    for_gradient_runs(gradient, args, [&](const float* grad, int64_t i, int64_t count) {
      step_run(rule, grad, args.output<float>(0) + i, args.output<float>(1) + i, count);
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const Attrs& attrs = args.node.attrs;
  const double beta1 = attrs.real("beta1"), beta2 = attrs.real("beta2");
  const double rate = args.in[kRate][0], factor = args.in[kFactor][0];
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double p = args.in[kParam][i], m = args.in[kFirstState][i], g = factor * args.in[kGrad][i];
    const double direction = beta1 * m + (1 - beta1) * g;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    args.out[0][i] = factor < 0 ? p : p * (1 - rate * attrs.real("weight_decay")) - rate * sign;
    args.out[1][i] = factor < 0 ? m : beta2 * m + (1 - beta2) * g;
  }
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& shape, DType dtype, double decay) {
    return Sample{.in = {normal(shape), normal(shape, dtype), positive({}), positive({}), normal(shape)},
                  .attrs = {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", decay}}};
  };
  return {sample({3, 7}, DType::f32, 0.01), sample({5003}, DType::f16, 0), sample({9}, DType::bf16, 0.1)};
}

}  // namespace

LionRule lion_rule(const Attrs& attrs) {
  return {.weight_decay = attrs.real("weight_decay"),
          .beta1 = static_cast<float>(attrs.real("beta1")),
          .beta2 = static_cast<float>(attrs.real("beta2"))};
}

const OpDef lion_update{.name = "lion_update",
                        .doc = "lion_update(param, grad, lr, factor, m): Lion (arXiv 2302.06675), in place",
                        .inputs = {"param", "grad", "lr", "factor", "momentum"},
                        .infer = [](const NodeView& node) { return infer_with_momentum(node, lion_update); },
                        .no_vjp_because = kUpdateHasNoGradient,
                        .cpu = cpu,
                        .gpu = true,
                        .gpu_many = true,
                        .reference = reference,
                        .cost = [](const NodeView& node) { return stream_cost(node, 9); },
                        .precision = ir::Precision::full,
                        .writes = {kParam, kFirstState},
                        .samples = samples};

}  // namespace hearth::ops
