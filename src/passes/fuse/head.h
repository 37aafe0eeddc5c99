#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Fuses head_cross_entropy with its gradient if every loss has the same weight, so that logits are computed
/// once. Runs after `backward`; results change by rounding only.
void fuse_head(ir::Graph& graph);

}  // namespace hearth::passes
