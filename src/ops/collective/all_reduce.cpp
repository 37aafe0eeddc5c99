#include <array>
#include <numeric>

#include "backend/exchange.h"
#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  for (const Type& type : node.in) {
    if (type.dtype != DType::f32) return refuse(fmt::format("expected f32 inputs, got {}", to_string(type)));
  }
  return {.out = {node.in.begin(), node.in.end()}, .error = ""};
}

Kernel cpu(const NodeView& node) {
  std::vector<size_t> counts;
  for (const Type& type : node.in) counts.push_back(static_cast<size_t>(type.shape.num_elements()));
  const DType wire = node.attrs.text_or("wire", "f32") == "bf16" ? DType::bf16 : DType::f32;
  return {.run = [counts, wire](const KernelArgs& args) {
    if (args.exchange == nullptr) return;
    std::array<std::span<float>, kMostPieces> pieces;
    for (size_t k = 0; k < counts.size(); ++k) pieces[k] = {args.output<float>(k), counts[k]};
    args.exchange->all_reduce(std::span(pieces).first(counts.size()), wire);
  }};
}

/// Of a worker that is alone.
void reference(const ReferenceArgs& args) { std::ranges::copy(args.in, args.out.begin()); }

std::vector<int> each_in_place() {
  std::vector<int> writes(kMostPieces);
  std::iota(writes.begin(), writes.end(), 0);
  return writes;
}

std::vector<Sample> samples() { return {{.in = {normal({7, 11}), normal({5})}}}; }

}  // namespace

const OpDef all_reduce{.name = "all_reduce",
                       .doc = "sums over the workers of a run, in place",
                       .max_inputs = kMostPieces,
                       .infer = infer,
                       .no_vjp_because = "workers meet behind the gradients",
                       .cpu = cpu,
                       .reference = reference,
                       .writes = each_in_place(),
                       .transfer = ir::Transfer::exchange,
                       .samples = samples};

}  // namespace hearth::ops
