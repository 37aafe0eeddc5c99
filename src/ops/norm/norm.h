#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Partial moments of an array of channels, f32 [groups, 2, channels]: the mean, and the sum of squared
/// deviations from it, of each kMomentRows consecutive rows (the last group may have fewer).
inline constexpr int64_t kMomentRows = 64;
constexpr int64_t moment_groups(int64_t rows) { return (rows + kMomentRows - 1) / kMomentRows; }
/// Returns the type of the partial moments of x.
ir::Type moments_type(const ir::Type& x);

/// Activation after a batch normalization in the same op (attribute `activation`); silu excludes a residual.
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
/// Gradient of batch_norm_infer; without inputs x and mean only the gradient of x.
extern const ir::OpDef batch_norm_infer_grad;

/// Group normalization (arXiv 1803.08494) of x [N, ..., C]: statistics per sample and per each of `groups`
/// runs of channels, output as mean and rstd, f32 [N, groups].
extern const ir::OpDef group_norm;
extern const ir::OpDef group_norm_grad;

/// Root mean square normalization (arXiv 1910.07467) of each row.
extern const ir::OpDef rms_norm;
extern const ir::OpDef rms_norm_grad;
/// Layer normalization (arXiv 1607.06450) of each row, with a bias.
extern const ir::OpDef layer_norm;
extern const ir::OpDef layer_norm_grad;

}  // namespace hearth::ops
