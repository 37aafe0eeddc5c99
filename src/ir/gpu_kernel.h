#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ir {

/// The part of an op that a module for GPUs has, by the op's name. It may differ from GPU to GPU; OpDef is
/// the same for all.
struct GpuKernel {
  std::string_view op;
  /// Puts its work into KernelArgs::stream.
  Kernel (*one)(const NodeView&) = nullptr;
  /// In its place: for nodes that are alike but for shapes, whose arguments stand one node after another.
  Kernel (*many)(std::span<const NodeView>) = nullptr;
  /// The matmuls inside it that are autotuned, as nodes of the op matmul. The attribute `way` has a word for
  /// each, with commas between (ops/matmul/matmul.h). Null: none.
  std::vector<LoneNode> (*matmuls)(const NodeView&) = nullptr;
  /// Of the op matmul: every `way` of such a node, the usual one first and the library's last.
  std::vector<std::string_view> (*ways)(const NodeView&, bool has_library) = nullptr;
};

}  // namespace hearth::ir
