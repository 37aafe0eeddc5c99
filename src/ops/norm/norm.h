#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Number of rows per group of partial moments. The partial moments of an array [rows, channels] are f32
/// [groups, 2, channels]: mean and sum of squared deviations of each channel over each group of consecutive
/// rows. The last group may have fewer rows.
inline constexpr int64_t kMomentRows = 64;
constexpr int64_t moment_groups(int64_t rows) { return (rows + kMomentRows - 1) / kMomentRows; }
/// Returns the type of the partial moments of an array of type x.
ir::Type moments_type(const ir::Type& x);

/// Activation that a batch normalization op applies to its result (attribute `activation`). silu is not
/// supported with a residual.
enum class NormActivation { none, relu, silu };
inline NormActivation norm_activation(const ir::Attrs& attrs) {
  const auto name = attrs.text_or("activation", "none");
  return name == "relu" ? NormActivation::relu : name == "silu" ? NormActivation::silu : NormActivation::none;
}

/// Batch normalization (arXiv 1502.03167) of x [..., channels], of rank 2 or 4, with statistics per channel
/// over all other axes; y = activation(norm(x) + residual). batch_norm_infer uses given statistics.
extern const ir::OpDef batch_norm;
extern const ir::OpDef batch_norm_infer;
extern const ir::OpDef batch_norm_grad;
/// Gradient of batch_norm_infer. Without the inputs x and mean, only the gradient of x is computed.
extern const ir::OpDef batch_norm_infer_grad;

/// Group normalization (arXiv 1803.08494) of x [N, ..., C]: channels are divided into `groups` groups of
/// adjacent channels, with statistics per sample and group. Also outputs mean and rstd, f32 [N, groups].
extern const ir::OpDef group_norm;
extern const ir::OpDef group_norm_grad;

/// Indices of the residual among the inputs of rms_norm_grad and layer_norm_grad (`centered`), and of the
/// copy of dx among their outputs. Both may be absent.
constexpr size_t row_norm_residual(bool centered) { return centered ? 5 : 4; }
constexpr size_t row_norm_copy(bool centered) { return centered ? 3 : 2; }

/// Root mean square normalization (RMSNorm, arXiv 1910.07467) of each row.
extern const ir::OpDef rms_norm;
extern const ir::OpDef rms_norm_grad;
/// Layer normalization (arXiv 1607.06450) of each row, with a bias.
extern const ir::OpDef layer_norm;
extern const ir::OpDef layer_norm_grad;

}  // namespace hearth::ops
