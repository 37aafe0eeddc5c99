#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops that update persistent state in place. With an input `factor` (f32 []), the gradient is multiplied by
/// it; a negative factor skips the step and leaves all state unchanged.
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
