#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops of diffusion transformers (DiT, FLUX). x is [N, D] with one token per row, N = B * T; the T tokens of
/// a sample are adjacent rows. Modulations (scale, shift, gate) are [B, D], one row per sample, in the dtype
/// of x.

/// Sinusoidal timestep embedding, `size` values per timestep t: the cosines, then the sines (cos_first=0:
/// sines first) of the angles t * exp(-ln(max_period) i / (size / 2 - shift)), i = 0 .. size / 2 - 1 (arXiv
/// 1706.03762, section 3.5). If size is odd, the last value is 0. Angles are rounded to f32, as in Diffusers.
extern const ir::OpDef timestep_embedding;

/// Adaptive layer normalization (adaLN, arXiv 2212.09748, section 3.2): y = norm(x) (1 + scale) + shift, with
/// layer normalization without weights and the scale and shift of the row's sample. Also outputs rstd and
/// mean of each row, f32 [N].
extern const ir::OpDef modulated_norm;
/// Gradients of x, shift and scale. Sums over a sample's rows are f32, in an order that does not depend on
/// the number of threads.
extern const ir::OpDef modulated_norm_grad;

/// y = x + gate * branch, with the gate of the row's sample.
extern const ir::OpDef gated_add;
/// Gradients of branch and gate. The gradient of x is dy itself.
extern const ir::OpDef gated_add_grad;

}  // namespace hearth::ops
