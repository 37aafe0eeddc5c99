#pragma once

#include "ir/graph.h"

namespace hearth::passes {

/// Fuses head_cross_entropy with its gradient into one op if all losses have the same weight, so that the
/// logits are computed only once. Runs after backward(). Results change by rounding only.
void fuse_head(ir::Graph& graph);

/// Doubles the number of tokens per chunk of the head, up to 4096, while the f32 logits of a chunk need at
/// most 1/64 of a GPU's memory: each chunk reads and writes the whole gradient of the head's weight.
void enlarge_head_chunks(ir::Graph& graph, int64_t memory_bytes);

}  // namespace hearth::passes
