#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Parts of a diffusion model (DiT, FLUX). The tokens of a sample are adjacent rows, N = B * T; modulations
/// are rows of [B, D] in the dtype of x.

/// Sinusoidal timestep embedding: [cos, sin] (cos_first=0: [sin, cos]) of t * exp(-ln(max_period) i / (size /
/// 2 - shift)), i = 0 .. size / 2 - 1 (arXiv 1706.03762, section 3.5); an odd size ends in a 0. Angles are
/// rounded to f32, as in Diffusers.
extern const ir::OpDef timestep_embedding;

/// Adaptive layer normalization (adaLN, arXiv 2212.09748, section 3.2): layer normalization without weights,
/// then y (1 + scale) + shift with scale and shift of the row's sample. Outputs mean and rstd are f32 [N].
extern const ir::OpDef modulated_norm;
/// Gradients; sums over a sample's rows are f32, in an order that does not depend on the number of threads.
extern const ir::OpDef modulated_norm_grad;

/// x + gate * branch, with the gate of the row's sample.
extern const ir::OpDef gated_add;
/// Gradients of branch and gate; the gradient of x is the cotangent of the sum.
extern const ir::OpDef gated_add_grad;

}  // namespace hearth::ops
