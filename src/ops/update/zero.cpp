#include <cstring>

#include "base/threads.h"
#include "ops/update/support.h"
#include "ops/update/update.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) { return {.out = {node.in_type(0)}, .error = ""}; }

Kernel cpu(const NodeView& node) {
  const int64_t num_bytes = node.in_type(0).num_bytes();
  return {.run =
              [num_bytes](const KernelArgs& args) {
                auto* out = args.output<char>(0);
                args.threads->parallel_for(num_bytes, 1 << 16, [&](Range range) {
                  std::memset(out + range.begin, 0, static_cast<size_t>(range.size()));
                });
              },
          .workspace_bytes = 0};
}

void reference(const ReferenceArgs& args) {
  for (double& value : args.out[0]) value = 0;
}

std::vector<Sample> samples() {
  return {{.in = {normal({3, 5})}, .attrs = {}}, {.in = {normal({7}, DType::bf16)}, .attrs = {}}};
}

}  // namespace

const OpDef zero{.name = "zero",
                 .doc = "x' = 0, in place",
                 .inputs = {"x"},
                 .infer = infer,
                 .no_vjp_because = kUpdateHasNoGradient,
                 .cpu = cpu,
                 .gpu = true,
                 .gpu_many = true,
                 .reference = reference,
                 .writes = {0},
                 .samples = samples};

}  // namespace hearth::ops
