#pragma once

#include <vector>

#include "ir/op_def.h"

namespace hearth::ops {

/// Number of rows per group of partial moments. The partial moments of an array [rows, channels] are f32
/// [groups, 2, channels]: mean and sum of squared deviations of each channel over each group of consecutive
/// rows. The last group may have fewer rows.
inline constexpr int64_t kMomentRows = 64;
constexpr int64_t moment_groups(int64_t rows) { return (rows + kMomentRows - 1) / kMomentRows; }
/// Returns the type of the partial moments of an array of type x.
ir::Type moments_type(const ir::Type& x);

/// Number of elements per byte of a mask. The mask of a 16-bit array is u8 [elements / kMaskElements]: bit i
/// of a byte is 1 if the i-th of kMaskElements adjacent elements is positive.
inline constexpr int64_t kMaskElements = 8;
/// True if an array of type x may have a mask: a 16-bit dtype, and channels divisible by kMaskElements.
bool may_have_mask(const ir::Type& x);
/// Returns the type of the mask of an array of type x.
ir::Type mask_type(const ir::Type& x);
/// True if the bit of element i is 1 in a mask whose bytes are stored as doubles.
inline bool is_set(const std::vector<double>& mask, size_t i) {
  return (static_cast<unsigned>(mask[i / kMaskElements]) >> i % kMaskElements & 1) != 0;
}
/// Indices of the mask among the outputs of batch_norm and the inputs of batch_norm_grad.
inline constexpr size_t kNormMask = 5, kNormGradMask = 7;

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
