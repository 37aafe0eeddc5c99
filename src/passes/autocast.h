#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Mixed precision (Micikevicius et al., ICLR 2018). Compute ops (OpDef::precision) read their floating
/// inputs in `dtype` (bf16 or f16), losses and optimizers in f32; other ops follow their inputs. Trained
/// weights stay f32, with one cast per weight shared by its readers; frozen matrices are stored in `dtype`.
/// With f32 the graph is unchanged.
void autocast(TrainGraph& train, DType dtype);

}  // namespace hearth::passes
