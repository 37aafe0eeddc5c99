#include "backend/cpu/clones.h"
#include "base/threads.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void blend(const float* param, float* ema, float weight, int64_t count) {
  for (int64_t i = 0; i < count; ++i) ema[i] += weight * (param[i] - ema[i]);
}

Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, ema_update, {1}); !error.empty()) return refuse(error);
  const size_t last = node.has_input(3) ? 3 : 2;
  if (auto error = check_scalars(node, ema_update, 2, last); !error.empty()) return refuse(error);
  if (node.in_type(1).dtype != DType::f32) return refuse_type("the parameter", "f32", node.in_type(1));
  return {.out = {node.in_type(0)}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const auto run = [count, counts = node.has_input(3),
                    one_decay = static_cast<float>(1 - node.attrs.real("decay"))](const KernelArgs& args) {
    if (*args.input<float>(2) < 0) return;
    const float weight = counts ? ema_weight(one_decay, *args.input<float>(3)) : one_decay;
    args.threads->parallel_for(count, 4096, [&](Range range) {
      blend(args.input<float>(1) + range.begin, args.output<float>(0) + range.begin, weight, range.size());
    });
  };
  return {.run = run, .workspace_bytes = 0};
}

void reference(const ReferenceArgs& args) {
  double decay = args.node.attrs.real("decay");
  if (args.node.has_input(3)) decay = std::min(decay, (1 + args.in[3][0]) / (10 + args.in[3][0]));
  if (args.in[2][0] < 0) decay = 1;
  for (size_t i = 0; i < args.out[0].size(); ++i)
    args.out[0][i] = decay * args.in[0][i] + (1 - decay) * args.in[1][i];
}

Cost cost(const NodeView& node) { return stream_cost(node, 3); }

std::vector<Sample> samples() {
  return {{.in = {normal({5, 3}), normal({5, 3}), one()}, .attrs = {{"decay", 0.9}}},
          {.in = {normal({4099}), normal({4099}), positive({})}, .attrs = {{"decay", 0.999}}},
          {.in = {normal({4099}), normal({4099}), one(), positive({})}, .attrs = {{"decay", 0.999}}},
          {.in = {normal({33}), normal({33}), one(), positive({})}, .attrs = {{"decay", 0.05}}}};
}

}  // namespace

const OpDef ema_update{.name = "ema_update",
                       .doc =
                           "ema_update(ema, param, factor, steps?): ema' = d ema + (1 - d) param, in place, "
                           "d = min(decay, (1 + steps) / (10 + steps))",
                       .inputs = {"ema", "param", "factor", "steps?"},
                       .infer = infer,
                       .no_vjp_because = kUpdateHasNoGradient,
                       .cpu = cpu,
                       .gpu = true,
                       .gpu_many = true,
                       .reference = reference,
                       .cost = cost,
                       .precision = ir::Precision::full,
                       .writes = {0},
                       .samples = samples};

}  // namespace hearth::ops
