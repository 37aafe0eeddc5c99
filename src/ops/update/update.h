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

}  // namespace hearth::ops
