#include <algorithm>
#include <array>
#include <numeric>

#include "distributed/process_group.h"
#include "ops/collective/collective.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr std::string_view kNoGradient = "workers meet after the gradients";

using distributed::ProcessGroup;

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
    if (args.group == nullptr) return;
    std::array<std::span<float>, kMostPieces> pieces;
    for (size_t k = 0; k < counts.size(); ++k) pieces[k] = {args.output<float>(k), counts[k]};
    collective(args, std::span<const std::span<float>>(pieces).first(counts.size()));
  }};
}

/// Of the host's memory, as one array.
template <typename Collective>
Kernel kernel(const NodeView& node, Collective collective) {
  return each_output(node, [collective](const KernelArgs& args, std::span<const std::span<float>> pieces) {
    args.group->in_step(pieces, [&](std::span<float> all) { collective(*args.group, all); });
  });
}

/// Of a device's memory.
template <typename Collective>
Kernel kernel_on_device(const NodeView& node, Collective collective) {
  return each_output(node, [collective](const KernelArgs& args, std::span<const std::span<float>> pieces) {
    args.group->in_step([&] {
      for (const std::span<float> piece : pieces) collective(*args.group, piece, *args.stream);
    });
  });
}

int root_of(const NodeView& node) { return static_cast<int>(node.attrs.integer("root")); }

Kernel all_reduce_cpu(const NodeView& node) {
  const DType wire = node.attrs.text_or("wire", "f32") == "bf16" ? DType::bf16 : DType::f32;
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

Kernel all_reduce_on_device(const NodeView& node) {
  return kernel_on_device(node, [](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
    group.all_reduce(piece.data(), std::ssize(piece), DType::f32, stream);
  });
}

Kernel reduce_on_device(const NodeView& node) {
  return kernel_on_device(
      node, [root = root_of(node)](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
        group.reduce(piece.data(), std::ssize(piece), DType::f32, root, stream);
      });
}

Kernel broadcast_on_device(const NodeView& node) {
  return kernel_on_device(
      node, [root = root_of(node)](ProcessGroup& group, std::span<float> piece, gpu::Stream& stream) {
        group.broadcast(piece.data(), static_cast<int64_t>(piece.size_bytes()), root, stream);
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
                       .gpu = all_reduce_on_device,
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
                   .gpu = reduce_on_device,
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
                      .gpu = broadcast_on_device,
                      .reference = reference,
                      .writes = each_in_place(),
                      .transfer = ir::Transfer::exchange,
                      .samples = samples};

}  // namespace hearth::ops
