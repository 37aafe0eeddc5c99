#include "backend/cpu/rows.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  if (auto error = check_same_shape(node, accumulate, {1}); !error.empty()) return refuse(error);
  return {.out = {node.in_type(0)}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  return {.run = [gradient = node.in_type(1)](const KernelArgs& args) {
    for_gradient_runs(gradient, args, [&](const float* grad, int64_t i, int64_t count) {
      cpu::add_row(grad, args.output<float>(0) + i, count);
    });
  }};
}

void reference(const ReferenceArgs& args) {
  for (size_t i = 0; i < args.out[0].size(); ++i) args.out[0][i] = args.in[0][i] + args.in[1][i];
}

Cost cost(const NodeView& node) { return stream_cost(node, 1); }

std::vector<Sample> samples() {
  return {{.in = {normal({7, 11}), normal({7, 11})}, .attrs = {}},
          {.in = {normal({2051}), normal({2051}, DType::bf16)}, .attrs = {}},
          {.in = {normal({13}), normal({13}, DType::f16)}, .attrs = {}}};
}

}  // namespace

const OpDef accumulate{.name = "accumulate",
                       .doc = "sum' = sum + x, in place; sum is f32",
                       .inputs = {"sum", "x"},
                       .infer = infer,
                       .no_vjp_because = kUpdateHasNoGradient,
                       .cpu = cpu,
                       .gpu = true,
                       .gpu_many = true,
                       .reference = reference,
                       .cost = cost,
                       .writes = {0},
                       .samples = samples};

}  // namespace hearth::ops
