#include "backend/cpu/clones.h"
#include "ops/update/rules.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void round_off(float* gradient, float* error, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float whole = gradient[i] + error[i];
    gradient[i] = to_f32(to_bf16(whole));
    error[i] = rounding_error(whole, gradient[i]);
  }
}

Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, bf16_feedback, {1}); !error.empty()) return refuse(error);
  if (node.in_type(1).dtype != DType::f32) return refuse_type("the error", "f32", node.in_type(1));
  return {.out = {node.in_type(0), node.in_type(1)}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  return {.run = [count = node.in_type(0).shape.num_elements()](const KernelArgs& args) {
    for_runs(count, *args.threads, [&](int64_t i, int64_t num) {
      round_off(args.output<float>(0) + i, args.output<float>(1) + i, num);
    });
  }};
}

void reference(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    // The sum is computed in f32, as in the kernel, before it is rounded to bf16.
    const float whole = static_cast<float>(args.in[0][i]) + static_cast<float>(args.in[1][i]);
    args.out[0][i] = to_f32(to_bf16(whole));
    args.out[1][i] = static_cast<double>(whole) - args.out[0][i];
  }
}

Cost cost(const NodeView& node) { return stream_cost(node, 3); }

std::vector<Sample> samples() {
  return {{.in = {normal({7, 11}), normal({7, 11})}, .attrs = {}},
          {.in = {normal({5003}), normal({5003})}, .attrs = {}}};
}

}  // namespace

const OpDef bf16_feedback{.name = "bf16_feedback",
                          .doc = "g' = bf16(g + error), error' = g + error - g', in place",
                          .inputs = {"grad", "error"},
                          .infer = infer,
                          .no_vjp_because = kUpdateHasNoGradient,
                          .cpu = cpu,
                          .gpu = true,
                          .gpu_many = true,
                          .reference = reference,
                          .cost = cost,
                          .precision = ir::Precision::full,
                          .writes = {0, 1},
                          .samples = samples};

}  // namespace hearth::ops
