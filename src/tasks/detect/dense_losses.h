#pragma once

#include "nn/module.h"

namespace hearth::tasks {

/// Losses of detectors that predict at every anchor or cell, as graph nodes.

/// Returns the focal loss of each anchor, summed over classes, with alpha 0.25 and gamma 2 (Lin et al. 2017,
/// arXiv 1708.02002): logits f32 [N, A, C] and labels i32 [N, A] (negative: background) -> [N * A, 1].
ir::ValueId class_losses(nn::Builder& builder, ir::ValueId logits, ir::ValueId labels);
/// Returns the sum over each image's anchors of losses [N * A, 1] times weights of N * A elements: [N].
ir::ValueId sum_per_image(nn::Builder& builder, ir::ValueId losses, ir::ValueId weights, int64_t images);

}  // namespace hearth::tasks
