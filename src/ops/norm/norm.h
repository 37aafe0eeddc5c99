#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Batch normalisation (arXiv 1502.03167) over all axes but the last; x has rank 2 or 4. With activation
/// "relu" and a residual, y = relu(norm(x) + residual).
extern const ir::OpDef batch_norm;
extern const ir::OpDef batch_norm_infer;
extern const ir::OpDef batch_norm_grad;
/// Kernels for cards.
ir::Kernel batch_norm_gpu(const ir::NodeView& node);
ir::Kernel batch_norm_infer_gpu(const ir::NodeView& node);
ir::Kernel batch_norm_grad_gpu(const ir::NodeView& node);

/// Root mean square normalisation (arXiv 1910.07467) of each row.
extern const ir::OpDef rms_norm;
extern const ir::OpDef rms_norm_grad;
/// Layer normalisation (arXiv 1607.06450) of each row, its bias included.
extern const ir::OpDef layer_norm;
extern const ir::OpDef layer_norm_grad;
/// Kernels for cards.
ir::Kernel rms_norm_gpu(const ir::NodeView& node);
ir::Kernel rms_norm_grad_gpu(const ir::NodeView& node);
ir::Kernel layer_norm_gpu(const ir::NodeView& node);
ir::Kernel layer_norm_grad_gpu(const ir::NodeView& node);

}  // namespace hearth::ops
