#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ir {

/// GPU part of an op, provided by the GPU module and found by the op's name. It may differ between GPUs,
/// while OpDef is common to all.
struct GpuKernel {
  std::string_view op;
  /// Prepares the kernel of one node; running it enqueues work on KernelArgs::stream.
  Kernel (*one)(const NodeView&) = nullptr;
  /// Prepares one kernel for several nodes that differ in shapes only (replaces `one`); KernelArgs holds the
  /// arguments of the nodes one after another.
  Kernel (*many)(std::span<const NodeView>) = nullptr;
  /// Returns the matmuls inside the node that are autotuned, as nodes of op matmul. The attribute `way` holds
  /// one kernel variant for each, comma-separated (ops/matmul/matmul.h). Null: none.
  std::vector<StandaloneNode> (*matmuls)(const NodeView&) = nullptr;
  /// For op matmul only: returns all kernel variants (values of `way`) for the node, the default first and
  /// the vendor library last.
  std::vector<std::string_view> (*ways)(const NodeView&, bool has_library) = nullptr;
};

}  // namespace hearth::ir
