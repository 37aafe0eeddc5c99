#include <algorithm>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "base/threads.h"
#include "ops/rules.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

constexpr int64_t kRun = 1024;

HEARTH_CLONES void add_run(const float* in, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += in[i];
}

ir::Inferred infer(const ir::NodeView& node) {
  if (auto error = check_same_shape(node, {1}); !error.empty()) return ir::refuse(error);
  return {.out = {node.in_type(0)}, .error = ""};
}

ir::Kernel cpu(const ir::NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const DType dtype = node.in_type(1).dtype;
  return {.run =
              [count, dtype](const ir::KernelArgs& args) {
                args.threads->parallel_for(count, 4 * kRun, [&](Range range) {
                  float scratch[kRun];
                  for (int64_t i = range.begin; i < range.end; i += kRun) {
                    const int64_t length = std::min(kRun, range.end - i);
                    add_run(cpu::as_f32(dtype, args.in[1], i, length, scratch), args.output<float>(0) + i,
                            length);
                  }
                });
              },
          .workspace_bytes = 0};
}

void reference(const ir::ReferenceArgs& args) {
  for (size_t i = 0; i < args.out[0].size(); ++i) args.out[0][i] = args.in[0][i] + args.in[1][i];
}

ir::Cost cost(const ir::NodeView& node) { return stream_cost(node, 1); }

std::vector<ir::Sample> samples() {
  return {{.in = {normal({7, 11}), normal({7, 11})}, .attrs = {}},
          {.in = {normal({2051}), normal({2051}, DType::bf16)}, .attrs = {}},
          {.in = {normal({13}), normal({13}, DType::f16)}, .attrs = {}}};
}

}  // namespace

const ir::OpDef accumulate{.name = "accumulate",
                           .doc = "acc' = acc + g, in place; acc is f32",
                           .min_inputs = 2,
                           .max_inputs = 2,
                           .infer = infer,
                           .no_vjp_because = kUpdateHasNoGradient,
                           .cpu = cpu,
                           .reference = reference,
                           .cost = cost,
                           .writes = {0},
                           .samples = samples};

}  // namespace hearth::ops
