#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops that change persistent state in place. Where there is a `factor` (f32 []), the gradient is multiplied
/// by it, and a negative factor means "skip this step": nothing is touched.
extern const ir::OpDef zero;
extern const ir::OpDef accumulate;
extern const ir::OpDef bf16_feedback;
extern const ir::OpDef sgd_update;
extern const ir::OpDef adamw_update;
extern const ir::OpDef adamw8bit_update;
extern const ir::OpDef lion_update;
extern const ir::OpDef adafactor_update;
extern const ir::OpDef muon_update;
extern const ir::OpDef ema_update;
extern const ir::OpDef increment;
extern const ir::OpDef clip_factor;
extern const ir::OpDef loss_scale_update;
extern const ir::OpDef loss_scale_read;

/// Kernels for GPUs; those of weight by weight for many weights at once.
ir::Kernel zero_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel accumulate_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel bf16_feedback_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel sgd_update_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel adamw_update_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel adamw8bit_update_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel lion_update_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel adafactor_update_gpu(const ir::NodeView& node);
ir::Kernel muon_update_gpu(const ir::NodeView& node);
ir::Kernel ema_update_gpu(std::span<const ir::NodeView> nodes);
ir::Kernel increment_gpu(const ir::NodeView& node);
ir::Kernel clip_factor_gpu(const ir::NodeView& node);
ir::Kernel loss_scale_update_gpu(const ir::NodeView& node);
ir::Kernel loss_scale_read_gpu(const ir::NodeView& node);

}  // namespace hearth::ops
