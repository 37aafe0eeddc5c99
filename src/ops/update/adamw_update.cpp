#include <cmath>

#include "backend/cpu/clones.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void step_run(const AdamStep& step, const float* grad, float* param, float* m, float* v,
                            int64_t count) {
  const AdamStep s = step;
  for (int64_t i = 0; i < count; ++i) s.move(grad[i], param[i], m[i], v[i]);
}

Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, adamw_update, {kGrad, 4, 5}); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, adamw_update, kRate, kFactor); !error.empty()) return refuse(error);
  if (auto error = check_scalars(node, adamw_update, 6, 6); !error.empty()) return refuse(error);
  const Type& type = node.in_type(kParam);
  if (node.in_type(4) != type || node.in_type(5) != type)
    return refuse("expected both moments to be f32 and of the shape of the parameter");
  return {.out = {type, type, type}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  const auto run = [gradient = node.in_type(kGrad),
                    options = adam_options(node.attrs)](const KernelArgs& args) {
    const AdamStep step =
        adam_step(options, *args.input<float>(kRate), *args.input<float>(kFactor), *args.input<float>(6));
    if (step.factor < 0) return;
    for_gradient_runs(gradient, args, [&](const float* grad, int64_t i, int64_t count) {
      step_run(step, grad, args.output<float>(0) + i, args.output<float>(1) + i, args.output<float>(2) + i,
               count);
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const AdamOptions options = adam_options(args.node.attrs);
  const double rate = args.in[kRate][0], factor = args.in[kFactor][0], count = args.in[6][0];
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double p = args.in[kParam][i], m = args.in[4][i], v = args.in[5][i];
    const double g = factor * args.in[kGrad][i];
    const double new_m = options.beta1 * m + (1 - options.beta1) * g;
    const double new_v = options.beta2 * v + (1 - options.beta2) * g * g;
    const double m_hat = new_m / (1 - std::pow(options.beta1, count));
    const double v_hat = new_v / (1 - std::pow(options.beta2, count));
    const double new_p =
        p - rate * options.weight_decay * p - rate * m_hat / (std::sqrt(v_hat) + options.eps);
    args.out[0][i] = factor < 0 ? p : new_p;
    args.out[1][i] = factor < 0 ? m : new_m;
    args.out[2][i] = factor < 0 ? v : new_v;
  }
}

Cost cost(const NodeView& node) { return stream_cost(node, 14); }

Sample sample(const Shape& shape, DType dtype, double decay) {
  return {.in = {normal(shape), normal(shape, dtype), positive({}), positive({}), normal(shape),
                 positive(shape), one()},
          .attrs = {{"beta1", 0.9}, {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", decay}}};
}

std::vector<Sample> samples() {
  return {sample({3, 7}, DType::f32, 0.01), sample({5003}, DType::f16, 0), sample({9}, DType::bf16, 0.1)};
}

}  // namespace

const OpDef adamw_update{.name = "adamw_update",
                         .doc =
                             "adamw_update(param, grad, lr, factor, m, v, step_count): torch.optim.AdamW "
                             "(arXiv 1711.05101), in place; step_count includes this step",
                         .inputs = {"param", "grad", "lr", "factor", "m", "v", "step_count"},
                         .infer = infer,
                         .no_vjp_because = kUpdateHasNoGradient,
                         .cpu = cpu,
                         .gpu = true,
                         .gpu_many = true,
                         .reference = reference,
                         .cost = cost,
                         .precision = ir::Precision::full,
                         .writes = {0, 4, 5},
                         .samples = samples};

}  // namespace hearth::ops
