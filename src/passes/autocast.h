#pragma once

#include "passes/train_graph.h"

namespace hearth::passes {

/// Mixed precision (Micikevicius et al., ICLR 2018). Ops with Precision::compute read floating-point inputs
/// in `dtype` (bf16 or f16); losses and optimizers read them in f32; all other ops follow the dtype of their
/// inputs. Trained weights stay f32, and each is cast once for all of its readers. Frozen matrices are stored
/// in `dtype`. If `dtype` is f32, the graph is unchanged.
void autocast(TrainGraph& train, DType dtype);

}  // namespace hearth::passes
