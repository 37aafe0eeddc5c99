#pragma once

#include "models/fpn/fpn.h"

namespace hearth::models {

/// What FCOS predicts at each cell of the pyramid, f32.
struct FcosOutputs {
  ir::ValueId logits = ir::kNone;  ///< of classes, [N, A, C]
  /// [N, A, 4], none below 0: how far a box's left, upper, right and lower edges lie from the cell, in sides
  /// of the cell at levels whose strides are 8 to 128.
  ir::ValueId edges = ir::kNone;
  ir::ValueId centerness = ir::kNone;  ///< logits [N, A, 1]
};

/// FCOS (Tian et al. 2019, arXiv 1904.01355) on pictures [N, H, W, 3], in the names and layouts of
/// torchvision's fcos_resnet50_fpn. Cells are ordered by level, row and column. UserError for sides that 32
/// does not divide, and for a width that 8 does not, as the head's norms have 32 groups.
FcosOutputs build_fcos(nn::Builder& builder, ir::ValueId images, const PyramidOptions& options,
                       int64_t num_classes);

}  // namespace hearth::models
