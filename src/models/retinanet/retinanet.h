#pragma once

#include "models/fpn/fpn.h"

namespace hearth::models {

/// Number of anchor boxes per cell of the pyramid: three sizes times three aspect ratios.
inline constexpr int64_t kRetinanetAnchors = 9;

/// Predictions of RetinaNet, f32, for N images, A anchors and C classes.
struct RetinanetOutputs {
  ir::ValueId logits = ir::kNone;  ///< class logits [N, A, C]
  /// [N, A, 4]: offset of the box's center from the anchor's in anchor widths and heights, then the
  /// logarithms of width and height relative to the anchor's.
  ir::ValueId boxes = ir::kNone;
};

/// RetinaNet (Lin et al. 2017, arXiv 1708.02002) on images [N, H, W, 3], with the names and layouts of
/// torchvision's retinanet_resnet50_fpn. Anchors are ordered by level, row, column and kind. Throws a
/// UserError for image sides not divisible by 32.
RetinanetOutputs build_retinanet(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options,
                                 int64_t num_classes);

}  // namespace hearth::models
