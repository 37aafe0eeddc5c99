#pragma once

#include "nn/module.h"

namespace hearth::tasks {

/// The functions below add losses of detectors that predict at every anchor or cell (A per image) to a graph.

/// Returns the focal loss of each anchor, summed over classes, with alpha 0.25 and gamma 2 (Lin et al. 2017,
/// arXiv 1708.02002): logits f32 [N, A, C] and labels i32 [N, A] (negative: background) -> [N * A, 1].
ir::ValueId class_losses(nn::Builder& builder, ir::ValueId logits, ir::ValueId labels);
/// Returns for each image the sum over its anchors of loss times weight, [N]. `losses`: [N * A, 1];
/// `weights`: N * A elements; `images`: N.
ir::ValueId sum_per_image(nn::Builder& builder, ir::ValueId losses, ir::ValueId weights, int64_t images);

}  // namespace hearth::tasks
