#include "backend/cpu/clones.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void step_plain(const SgdRule& rule, const float* grad, float* param, int64_t count) {
  const SgdRule s = rule;
  for (int64_t i = 0; i < count; ++i) s.move(grad[i], param[i]);
}
HEARTH_CLONES void step_momentum(const SgdRule& rule, const float* grad, float* param, float* buffer,
                                 int64_t count) {
  const SgdRule s = rule;
  for (int64_t i = 0; i < count; ++i) s.move(grad[i], param[i], buffer[i]);
}

Inferred infer(const NodeView& node) {
  if (node.has_input(kFirstState)) return infer_with_momentum(node, sgd_update);
  if (auto error = check_same_shape(node, sgd_update, {kGrad}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, sgd_update, kRate, kFactor); !error.empty()) return refuse(error);
  return {.out = {node.in_type(kParam)}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  const Type gradient = node.in_type(kGrad);
  const bool with_momentum = node.has_input(kFirstState);
  const auto run = [=, rule = sgd_rule(node.attrs)](const KernelArgs& args) mutable {
    rule.rate = *args.input<float>(kRate);
    rule.factor = *args.input<float>(kFactor);
    if (rule.factor < 0) return;
    for_gradient_runs(gradient, args, [&](const float* grad, int64_t i, int64_t count) {
      float* param = args.output<float>(0) + i;
      with_momentum ? step_momentum(rule, grad, param, args.output<float>(1) + i, count)
                    : step_plain(rule, grad, param, count);
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const Attrs& attrs = args.node.attrs;
  const double momentum = attrs.real_or("momentum", 0);
  const double rate = args.in[kRate][0], factor = args.in[kFactor][0];
  const bool with_momentum = args.node.has_input(kFirstState);
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double p = args.in[kParam][i];
    const double old = with_momentum ? args.in[kFirstState][i] : 0;
    const double g = factor * args.in[kGrad][i] + attrs.real_or("weight_decay", 0) * p;
    const double b = momentum * old + g;
    const double direction = !with_momentum ? g : attrs.integer_or("nesterov", 0) != 0 ? g + momentum * b : b;
    args.out[0][i] = factor < 0 ? p : p - rate * direction;
    if (with_momentum) args.out[1][i] = factor < 0 ? old : b;
  }
}

Cost cost(const NodeView& node) { return stream_cost(node, 7); }

Attrs attributes(double momentum, int64_t nesterov, double decay) {
  return {{"momentum", momentum}, {"nesterov", nesterov}, {"weight_decay", decay}};
}

std::vector<Sample> samples() {
  const Shape shape{5, 7};
  return {{.in = {normal(shape), normal(shape), positive({}), one()}, .attrs = attributes(0, 0, 0.01)},
          {.in = {normal(shape), normal(shape), positive({}), positive({}), normal(shape)},
           .attrs = attributes(0.9, 0, 5e-4)},
          {.in = {normal({5003}), normal({5003}, DType::bf16), positive({}), one(), normal({5003})},
           .attrs = attributes(0.9, 1, 0)}};
}

}  // namespace

SgdRule sgd_rule(const Attrs& attrs) {
  return {.momentum = static_cast<float>(attrs.real_or("momentum", 0)),
          .weight_decay = static_cast<float>(attrs.real_or("weight_decay", 0)),
          .nesterov = attrs.integer_or("nesterov", 0) != 0};
}

const OpDef sgd_update{
    .name = "sgd_update",
    .doc = "sgd_update(param, grad, lr, factor, momentum?): torch.optim.SGD with dampening 0, in place",
    .inputs = {"param", "grad", "lr", "factor", "momentum?"},
    .infer = infer,
    .no_vjp_because = kUpdateHasNoGradient,
    .cpu = cpu,
    .gpu = true,
    .gpu_many = true,
    .reference = reference,
    .cost = cost,
    .precision = ir::Precision::full,
    .writes = {kParam, kFirstState},
    .samples = samples};

}  // namespace hearth::ops
