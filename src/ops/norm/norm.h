#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Moments of an array of channels, f32 [groups, 2, channels]: of each kMomentRows rows in their order (the
/// last group may have fewer), the mean and the summed squared deviations from it.
inline constexpr int64_t kMomentRows = 64;
constexpr int64_t moment_groups(int64_t rows) { return (rows + kMomentRows - 1) / kMomentRows; }
ir::Type moments_type(const ir::Type& x);

/// What follows a batch normalization in the same op, attribute `activation`; silu comes without a residual.
enum class NormActivation { none, relu, silu };
inline NormActivation norm_activation(const ir::Attrs& attrs) {
  const auto name = attrs.text_or("activation", "none");
  return name == "relu" ? NormActivation::relu : name == "silu" ? NormActivation::silu : NormActivation::none;
}

/// Batch normalization (arXiv 1502.03167) over all axes but the last; x has rank 2 or 4. With activation
/// "relu" and a residual, y = relu(norm(x) + residual).
extern const ir::OpDef batch_norm;
extern const ir::OpDef batch_norm_infer;
extern const ir::OpDef batch_norm_grad;
/// Of batch_norm_infer; without x and mean, of x alone.
extern const ir::OpDef batch_norm_infer_grad;

/// Group normalization (arXiv 1803.08494) of x [N, ..., C]: statistics of each sample and each of `groups`
/// runs of channels, kept as mean and rstd f32 [N, groups].
extern const ir::OpDef group_norm;
extern const ir::OpDef group_norm_grad;

/// Root mean square normalization (arXiv 1910.07467) of each row.
extern const ir::OpDef rms_norm;
extern const ir::OpDef rms_norm_grad;
/// Layer normalization (arXiv 1607.06450) of each row, its bias included.
extern const ir::OpDef layer_norm;
extern const ir::OpDef layer_norm_grad;

}  // namespace hearth::ops
