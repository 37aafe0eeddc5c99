#include <algorithm>
#include <numeric>

#include "ops/collective/each_output.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient = "collectives run after the backward pass";

using distributed::ProcessGroup;

Inferred infer(const NodeView& node) {
  for (const Type& type : node.in) {
    if (type.dtype != DType::f32) return refuse(fmt::format("expected f32 inputs, got {}", to_string(type)));
  }
  return {.out = {node.in.begin(), node.in.end()}, .error = ""};
}

/// Returns a kernel for inputs in host memory: calls collective(group, array) on all inputs as one contiguous
/// array.
template <typename Collective>
Kernel kernel(const NodeView& node, Collective collective) {
  return each_output(node, [collective](const KernelArgs& args, std::span<const std::span<float>> pieces) {
    args.group->in_step(pieces, [&](std::span<float> all) { collective(*args.group, all); });
  });
}

Kernel all_reduce_cpu(const NodeView& node) {
  const DType wire = *dtype_from_name(node.attrs.text_or("wire", "f32"));
  return kernel(node, [wire](ProcessGroup& group, std::span<float> all) { group.all_reduce(all, wire); });
}

Kernel reduce_cpu(const NodeView& node) {
  return kernel(
      node, [root = root_of(node)](ProcessGroup& group, std::span<float> all) { group.reduce(all, root); });
}

Kernel broadcast_cpu(const NodeView& node) {
  return kernel(node, [root = root_of(node)](ProcessGroup& group, std::span<float> all) {
    group.broadcast(std::as_writable_bytes(all), root);
  });
}

/// Reference for a single worker, in which outputs are equal to the inputs.
void reference(const ReferenceArgs& args) { std::ranges::copy(args.in, args.out.begin()); }

std::vector<int> each_in_place() {
  std::vector<int> writes(kMaxPieces);
  std::iota(writes.begin(), writes.end(), 0);
  return writes;
}

std::vector<Sample> samples() {
  return {{.in = {normal({7, 11}), normal({5})}, .attrs = {{"root", int64_t{0}}}}};
}

}  // namespace

const OpDef all_reduce{.name = "all_reduce",
                       .doc = "all-reduce: sums over all workers, in place",
                       .inputs = {"x+"},
                       .max_inputs = kMaxPieces,
                       .infer = infer,
                       .no_vjp_because = kNoGradient,
                       .cpu = all_reduce_cpu,
                       .gpu = true,
                       .reference = reference,
                       .writes = each_in_place(),
                       .transfer = ir::Transfer::exchange,
                       .samples = samples};

const OpDef reduce{.name = "reduce",
                   .doc = "reduce: sums over all workers on rank `root`, in place",
                   .inputs = {"x+"},
                   .max_inputs = kMaxPieces,
                   .infer = infer,
                   .no_vjp_because = kNoGradient,
                   .cpu = reduce_cpu,
                   .gpu = true,
                   .reference = reference,
                   .writes = each_in_place(),
                   .transfer = ir::Transfer::exchange,
                   .samples = samples};

const OpDef broadcast{.name = "broadcast",
                      .doc = "broadcast: the values of rank `root`, in place",
                      .inputs = {"x+"},
                      .max_inputs = kMaxPieces,
                      .infer = infer,
                      .no_vjp_because = kNoGradient,
                      .cpu = broadcast_cpu,
                      .gpu = true,
                      .reference = reference,
                      .writes = each_in_place(),
                      .transfer = ir::Transfer::exchange,
                      .samples = samples};

}  // namespace hearth::ops
