#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ir {

/// GPU part of an op. It is provided by a GPU module, found by the op's name, and may differ between GPUs;
/// OpDef is common to all.
struct GpuKernel {
  std::string_view op;
  /// Prepares the kernel of one node; running it enqueues work on KernelArgs::stream.
  Kernel (*one)(const NodeView&) = nullptr;
  /// Replaces `one` if one kernel can execute several nodes, which may differ in shapes only. KernelArgs then
  /// contains the arguments of the first node, followed by those of the second and so on.
  Kernel (*many)(std::span<const NodeView>) = nullptr;
  /// Returns the matmuls inside the node that can be autotuned, as nodes of op matmul. The node's attribute
  /// `way` then lists a kernel variant for each, separated by commas (ops/matmul/matmul.h). Null: there are
  /// none.
  std::vector<StandaloneNode> (*matmuls)(const NodeView&) = nullptr;
  /// For op matmul only: returns the kernel variants (values of the attribute `way`) that are valid for the
  /// node, the default first and the vendor's library last.
  std::vector<std::string_view> (*ways)(const NodeView&, bool has_library) = nullptr;
};

}  // namespace hearth::ir
