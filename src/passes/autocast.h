#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Mixed precision: ops that ask for it (OpDef::precision) read their floating inputs in `dtype` (bf16 or
/// f16), losses and optimizers in f32, the rest follow their inputs. Trained weights stay f32; one cast per
/// weight is shared; frozen matrices are kept in `dtype`. Micikevicius et al., ICLR 2018. f32 leaves the
/// graph alone.
void autocast(TrainGraph& train, DType dtype);

}  // namespace hearth::passes
