#pragma once

#include <optional>
#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// A node of the op matmul by itself. Its arrays are the first ones of the node that it was made from.
struct MatmulNode {
  ir::Attrs attrs;
  std::vector<ir::Type> in;
  ir::Type out;
  ir::NodeView view() const { return {.attrs = attrs, .in = in, .out = {&out, 1}}; }
};

/// The matmul that such a node is on GPUs, where its attribute `way` is the matmul's; nothing if it is none.
std::optional<MatmulNode> as_matmul(const ir::OpDef& op, const ir::NodeView& node);

}  // namespace hearth::ops
