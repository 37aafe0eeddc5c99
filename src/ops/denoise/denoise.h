#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// The parts of a denoiser. A sample's tokens are neighboring rows: N = B * T; what modulates them is a row
/// of [B, D] in the dtype of x.

/// [cos, sin] (cos_first=0: [sin, cos]) of t * exp(-ln(max_period) i / (size / 2 - shift)), i = 0 .. size / 2
/// (arXiv 1706.03762, section 3.5); an odd size ends in a 0. Angles are rounded to f32, as Diffusers does.
extern const ir::OpDef timestep_embedding;

/// Layer normalization without weights, then times 1 + scale of the row's sample, plus its shift (arXiv
/// 2212.09748, section 3.2); mean and rstd are f32 [N].
extern const ir::OpDef modulated_norm;
/// Sums over a sample's rows are f32, in an order that the number of threads does not change.
extern const ir::OpDef modulated_norm_grad;

/// x + gate * branch, the gate being that of the row's sample.
extern const ir::OpDef gated_add;
/// Of gate and branch; x has the cotangent of the sum.
extern const ir::OpDef gated_add_grad;

}  // namespace hearth::ops
