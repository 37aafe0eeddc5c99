#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// Ops that change persistent state in place. Where there is a `factor` (f32 []), the gradient is multiplied
/// by it, and a negative factor means "skip this step": nothing is touched.
extern const ir::OpDef zero;
extern const ir::OpDef accumulate;
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

inline constexpr std::string_view kUpdateHasNoGradient = "updates run after the gradients are known";

/// Refuses anything but f32 scalars at inputs [first, last]; an empty error otherwise.
std::string check_scalars(const ir::NodeView& node, size_t first, size_t last);
/// Refuses unless input 0 is f32 and the named inputs have its shape (gradient dtype may be narrower).
std::string check_same_shape(const ir::NodeView& node, std::initializer_list<size_t> inputs);

}  // namespace hearth::ops
