#pragma once

#include <array>
#include <span>
#include <vector>

#include "distributed/process_group.h"
#include "ir/op_def.h"
#include "ops/collective/collective.h"

namespace hearth::ops {

/// Returns a kernel that calls collective(args, a span per f32 output); without a process group the kernel
/// does nothing.
template <typename Collective>
ir::Kernel each_output(const ir::NodeView& node, Collective collective) {
  std::vector<size_t> counts;
  for (const ir::Type& type : node.out) counts.push_back(static_cast<size_t>(type.shape.num_elements()));
  return {.run = [counts, collective](const ir::KernelArgs& args) {
    if (args.group == nullptr) return;
    std::array<std::span<float>, kMaxPieces> pieces;
    for (size_t k = 0; k < counts.size(); ++k) pieces[k] = {args.output<float>(k), counts[k]};
    collective(args, std::span<const std::span<float>>(pieces).first(counts.size()));
  }};
}

/// Returns the rank in the attribute "root".
inline int root_of(const ir::NodeView& node) { return static_cast<int>(node.attrs.integer("root")); }

}  // namespace hearth::ops
