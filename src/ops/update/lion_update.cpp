#include "backend/cpu/clones.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

struct Options {
  double beta1;
  double beta2;
  double weight_decay;
};
Options options_of(const Attrs& attrs) {
  return {
      .beta1 = attrs.real("beta1"), .beta2 = attrs.real("beta2"), .weight_decay = attrs.real("weight_decay")};
}

struct Step {
  float keep;  ///< 1 - lr weight_decay
  float rate;
  float factor;
  float beta1;
  float beta2;
};

/// The direction is the sign of one average of gradients; another one is remembered.
HEARTH_CLONES void step_run(const Step& step, const float* grad, float* param, float* m, int64_t count) {
  const Step s = step;
  for (int64_t i = 0; i < count; ++i) {
    const float g = s.factor * grad[i];
    const float direction = s.beta1 * m[i] + (1 - s.beta1) * g;
    const float sign = direction > 0 ? 1.0F : direction < 0 ? -1.0F : 0.0F;
    m[i] = s.beta2 * m[i] + (1 - s.beta2) * g;
    param[i] = s.keep * param[i] - s.rate * sign;
  }
}

Kernel cpu(const NodeView& node) {
  const auto run = [gradient = node.in_type(1), options = options_of(node.attrs)](const KernelArgs& args) {
    const double rate = static_cast<double>(*args.input<float>(2));
    const Step step{.keep = static_cast<float>(1 - rate * options.weight_decay),
                    .rate = static_cast<float>(rate),
                    .factor = *args.input<float>(3),
                    .beta1 = static_cast<float>(options.beta1),
                    .beta2 = static_cast<float>(options.beta2)};
    if (step.factor < 0) return;
    for_gradient_runs(gradient, args, [&](const float* grad, int64_t i, int64_t count) {
      step_run(step, grad, args.output<float>(0) + i, args.output<float>(1) + i, count);
    });
  };
  return {.run = run};
}

void reference(const ReferenceArgs& args) {
  const Options options = options_of(args.node.attrs);
  const double rate = args.in[2][0], factor = args.in[3][0];
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const double p = args.in[0][i], m = args.in[4][i], g = factor * args.in[1][i];
    const double direction = options.beta1 * m + (1 - options.beta1) * g;
    const double sign = direction > 0 ? 1 : direction < 0 ? -1 : 0;
    args.out[0][i] = factor < 0 ? p : p * (1 - rate * options.weight_decay) - rate * sign;
    args.out[1][i] = factor < 0 ? m : options.beta2 * m + (1 - options.beta2) * g;
  }
}

std::vector<Sample> samples() {
  const auto sample = [](const Shape& shape, DType dtype, double decay) {
    return Sample{.in = {normal(shape), normal(shape, dtype), positive({}), positive({}), normal(shape)},
                  .attrs = {{"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", decay}}};
  };
  return {sample({3, 7}, DType::f32, 0.01), sample({2053}, DType::f32, 0), sample({9}, DType::bf16, 0.1)};
}

}  // namespace

const OpDef lion_update{.name = "lion_update",
                        .doc = "lion_update(param, grad, lr, factor, m): Lion (arXiv 2302.06675), in place",
                        .min_inputs = 5,
                        .max_inputs = 5,
                        .infer = infer_with_momentum,
                        .no_vjp_because = kUpdateHasNoGradient,
                        .cpu = cpu,
                        .reference = reference,
                        .cost = [](const NodeView& node) { return stream_cost(node, 9); },
                        .precision = ir::Precision::full,
                        .writes = {0, 4},
                        .samples = samples};

}  // namespace hearth::ops
