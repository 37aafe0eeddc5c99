#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Fuses head_cross_entropy with its gradient into one op if all losses have the same weight, so that the
/// logits are computed only once. Runs after backward(). Results change by rounding only.
void fuse_head(ir::Graph& graph);

}  // namespace hearth::passes
