#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops that update persistent state in place; x' denotes the new value of x. The gradient is multiplied by
/// the input `factor` (f32 []), if the op has it; a negative factor skips the step and leaves all state
/// unchanged.

/// Sets x to zeros: x' = 0.
extern const ir::OpDef zero;
/// sum' = sum + x, where sum is f32. Accumulates the gradients of micro-batches.
extern const ir::OpDef accumulate;
/// Rounds gradient + error to bf16 and stores the new rounding error, which is added to the next gradient
/// (error feedback, arXiv 1901.09847).
extern const ir::OpDef bf16_feedback;
/// The optimizers, equal to torch.optim.SGD with dampening 0, AdamW (arXiv 1711.05101), AdamW with 8-bit
/// moments as in bitsandbytes (arXiv 2110.02861), Lion (arXiv 2302.06675), torch.optim.Adafactor (arXiv
/// 1804.04235) and torch.optim.Muon. Weights and moments are f32, except the 8-bit moments.
extern const ir::OpDef sgd_update;
extern const ir::OpDef adamw_update;
extern const ir::OpDef adamw8bit_update;
extern const ir::OpDef lion_update;
extern const ir::OpDef adafactor_update;
extern const ir::OpDef muon_update;
/// Exponential moving average of a weight: ema' = d ema + (1 - d) param. d is the attribute decay or, with
/// the input steps, min(decay, (1 + steps) / (10 + steps)).
extern const ir::OpDef ema_update;
/// Counts steps: count' = count + 1, f32 []; skipped steps do not count.
extern const ir::OpDef increment;
/// Computes the input `factor` of a step: the inverse loss scale, times max_norm / norm if the gradient norm
/// is above max_norm (0: no clipping); -1 if the norm is not finite.
extern const ir::OpDef clip_factor;
/// Dynamic loss scaling as in torch.amp.GradScaler. loss_scale_update updates the state {scale, consecutive
/// finite steps, skipped steps} after a step; loss_scale_read returns s * scale or, with inverse=1, 1 /
/// scale.
extern const ir::OpDef loss_scale_update;
extern const ir::OpDef loss_scale_read;

}  // namespace hearth::ops
