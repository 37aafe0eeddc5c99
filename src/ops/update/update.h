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
/// fp8_feedback rounds `error`, to which the gradient has been added, to E5M2 times a power of two, and
/// stores what was rounded off in `error` (error feedback). The scale is computed from the sum of squares of
/// the errors of all workers (e5m2_scale() in base/e5m2.h), so that it is the same on all of them.
/// fp8_restore multiplies the sum of the rounded values over the workers by the scale.
extern const ir::OpDef fp8_feedback;
extern const ir::OpDef fp8_restore;
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
/// Pruning. A mask is u8 [ceil(elements / 8)]: bit i % 8 of byte i / 8 is set if element i is pruned.
/// mask_gradient returns, and apply_mask leaves, zeros at pruned elements.
extern const ir::OpDef mask_gradient, apply_mask;
/// Scores of weights, f32. With the input weight: score' = score - gradient * weight (movement pruning, Sanh
/// et al. 2020, arXiv 2005.07683). Without: score' = gradient, for RigL (Evci et al. 2019, arXiv 1911.11134).
extern const ir::OpDef prune_score;
/// Computes the key (base/pruning.h) below which elements of one or several tensors are pruned, as i32 [2]:
/// upper and lower half. prune_mask sets the mask of one of these tensors.
extern const ir::OpDef prune_threshold, prune_mask;
/// Sets a mask in which each group of N adjacent elements has an equal number of pruned ones (N:M patterns).
extern const ir::OpDef prune_groups;
/// Scores for growing weights again in RigL: the magnitude of the score of a pruned element, otherwise
/// kMaxGrowScore.
extern const ir::OpDef grow_score;
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
