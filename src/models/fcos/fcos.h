#pragma once

#include "models/fpn/fpn.h"

namespace hearth::models {

/// Predictions of FCOS, f32, for N images, A cells of the pyramid and C classes.
struct FcosOutputs {
  ir::ValueId logits = ir::kNone;  ///< class logits [N, A, C]
  /// [N, A, 4], non-negative: distances from the cell to the box's left, top, right and bottom edges, in
  /// units of the level's stride (8 to 128).
  ir::ValueId edges = ir::kNone;
  ir::ValueId centerness = ir::kNone;  ///< logits [N, A, 1]
};

/// FCOS (Tian et al. 2019, arXiv 1904.01355) on images [N, H, W, 3], with the names and layouts of
/// torchvision's fcos_resnet50_fpn. Cells are ordered by level, row and column. Throws a UserError for image
/// sides not divisible by 32 and widths not divisible by 8 (the head's group norms have 32 groups).
FcosOutputs build_fcos(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options,
                       int64_t num_classes);

}  // namespace hearth::models
