#pragma once

#include "nn/module.h"

namespace hearth::tasks {

/// Losses of detectors that predict at every anchor, as nodes.

/// Of logits f32 [N, A, C] and labels i32 [N, A], where none is below 0: the focal loss of all classes of an
/// anchor with alpha 0.25 and gamma 2 (Lin et al. 2017, arXiv 1708.02002), [N * A, 1].
ir::ValueId class_losses(nn::Builder& builder, ir::ValueId logits, ir::ValueId labels);
/// Losses [N * A, 1] times weights of any shape of as many -> their sum by picture, [N].
ir::ValueId sum_of_pictures(nn::Builder& builder, ir::ValueId losses, ir::ValueId weights, int64_t pictures);

}  // namespace hearth::tasks
