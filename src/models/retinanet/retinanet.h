#pragma once

#include "models/fpn/fpn.h"

namespace hearth::models {

/// Anchor boxes at every cell of the pyramid: three sizes by three shapes.
inline constexpr int64_t kRetinanetAnchors = 9;

/// What RetinaNet predicts for each of its anchors, f32.
struct RetinanetOutputs {
  ir::ValueId logits = ir::kNone;  ///< of classes, [N, A, C]
  /// [N, A, 4]: how far a box's center lies from the anchor's, in widths and heights of the anchor, and the
  /// logarithms of its width and height by the anchor's.
  ir::ValueId boxes = ir::kNone;
};

/// RetinaNet (Lin et al. 2017, arXiv 1708.02002) on pictures [N, H, W, 3], in the names and layouts of
/// torchvision's retinanet_resnet50_fpn. Anchors are ordered by level, row, column and kind. UserError for
/// sides that 32 does not divide.
RetinanetOutputs build_retinanet(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options,
                                 int64_t num_classes);

}  // namespace hearth::models
