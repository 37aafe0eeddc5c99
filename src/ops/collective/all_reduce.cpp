#include <algorithm>
#include <array>
#include <numeric>

#include "backend/exchange.h"
#include "base/error.h"
#include "ops/collective/collective.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient = "workers meet after the gradients";

using Pieces = std::span<const std::span<float>>;

Inferred infer(const NodeView& node) {
  for (const Type& type : node.in) {
    if (type.dtype != DType::f32) return refuse(fmt::format("expected f32 inputs, got {}", to_string(type)));
  }
  return {.out = {node.in.begin(), node.in.end()}, .error = ""};
}

/// Hands the outputs to `collective`, which is not called where there is no other worker.
template <typename Collective>
Kernel each_output(const NodeView& node, Collective collective) {
  std::vector<size_t> counts;
  for (const Type& type : node.out) counts.push_back(static_cast<size_t>(type.shape.num_elements()));
  return {.run = [counts, collective](const KernelArgs& args) {
    if (args.exchange == nullptr) return;
    std::array<std::span<float>, kMostPieces> pieces;
    for (size_t k = 0; k < counts.size(); ++k) pieces[k] = {args.output<float>(k), counts[k]};
    collective(args, Pieces(pieces).first(counts.size()));
  }};
}

template <typename Collective>
Kernel kernel(const NodeView& node, Collective collective) {
  return each_output(
      node, [collective](const KernelArgs& args, Pieces pieces) { collective(*args.exchange, pieces); });
}

Kernel all_reduce_cpu(const NodeView& node) {
  const DType wire = node.attrs.text_or("wire", "f32") == "bf16" ? DType::bf16 : DType::f32;
  return kernel(node, [wire](Exchange& exchange, Pieces pieces) { exchange.all_reduce(pieces, wire); });
}

Kernel reduce_cpu(const NodeView& node) {
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return kernel(node, [root](Exchange& exchange, Pieces pieces) { exchange.reduce(pieces, root); });
}

Kernel broadcast_cpu(const NodeView& node) {
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return kernel(node, [root](Exchange& exchange, Pieces pieces) { exchange.broadcast(pieces, root); });
}

/// The same for a GPU's memory.
template <typename Collective>
Kernel kernel_on_gpu(const NodeView& node, Collective collective) {
  return each_output(node, [collective](const KernelArgs& args, Pieces pieces) {
    GpuExchange* const gpus = args.exchange->on_gpu();
    HEARTH_CHECK(gpus != nullptr);
    collective(*gpus, pieces, *args.stream);
  });
}

Kernel all_reduce_on_gpu(const NodeView& node) {
  return kernel_on_gpu(
      node, [](GpuExchange& gpus, Pieces pieces, gpu::Stream& stream) { gpus.all_reduce(pieces, stream); });
}

Kernel reduce_on_gpu(const NodeView& node) {
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return kernel_on_gpu(node, [root](GpuExchange& gpus, Pieces pieces, gpu::Stream& stream) {
    gpus.reduce(pieces, root, stream);
  });
}

Kernel broadcast_on_gpu(const NodeView& node) {
  const auto root = static_cast<int>(node.attrs.integer("root"));
  return kernel_on_gpu(node, [root](GpuExchange& gpus, Pieces pieces, gpu::Stream& stream) {
    gpus.broadcast(pieces, root, stream);
  });
}

/// Of a worker that is alone.
void reference(const ReferenceArgs& args) { std::ranges::copy(args.in, args.out.begin()); }

std::vector<int> each_in_place() {
  std::vector<int> writes(kMostPieces);
  std::iota(writes.begin(), writes.end(), 0);
  return writes;
}

std::vector<Sample> samples() {
  return {{.in = {normal({7, 11}), normal({5})}, .attrs = {{"root", int64_t{0}}}}};
}

}  // namespace

const OpDef all_reduce{.name = "all_reduce",
                       .doc = "sums over the workers of a run, in place",
                       .inputs = {"x+"},
                       .most_inputs = kMostPieces,
                       .infer = infer,
                       .no_vjp_because = kNoGradient,
                       .cpu = all_reduce_cpu,
                       .gpu = all_reduce_on_gpu,
                       .reference = reference,
                       .writes = each_in_place(),
                       .transfer = ir::Transfer::exchange,
                       .samples = samples};

const OpDef reduce{.name = "reduce",
                   .doc = "sums over the workers of a run, in place, for one of them",
                   .inputs = {"x+"},
                   .most_inputs = kMostPieces,
                   .infer = infer,
                   .no_vjp_because = kNoGradient,
                   .cpu = reduce_cpu,
                   .gpu = reduce_on_gpu,
                   .reference = reference,
                   .writes = each_in_place(),
                   .transfer = ir::Transfer::exchange,
                   .samples = samples};

const OpDef broadcast{.name = "broadcast",
                      .doc = "what one worker of a run has, in place",
                      .inputs = {"x+"},
                      .most_inputs = kMostPieces,
                      .infer = infer,
                      .no_vjp_because = kNoGradient,
                      .cpu = broadcast_cpu,
                      .gpu = broadcast_on_gpu,
                      .reference = reference,
                      .writes = each_in_place(),
                      .transfer = ir::Transfer::exchange,
                      .samples = samples};

}  // namespace hearth::ops
