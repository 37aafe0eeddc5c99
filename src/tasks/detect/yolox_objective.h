#pragma once

#include <memory>
#include <string>

#include "engine/objective.h"

namespace hearth::tasks {

struct YoloxOptions {
  std::string model = "yolox_s";  ///< one of models::yolox_sizes()
  int64_t num_classes = 80;
  int64_t height = 640, width = 640;  ///< of pictures, where a batch has no row_length; 32 divides them
  int64_t max_boxes = 120;            ///< of a picture
};

/// YOLOX with its losses (Ge et al. 2021, arXiv 2107.08430). A micro-batch is {images f32 [rows, height,
/// width, 3] in RGB from 0 to 255, targets f32 [rows, max_boxes, 5] as in ops/detect/detect.h, weight of the
/// L1 loss f32 [rows], which is 1 in the last epochs and 0 before}; a sample is a picture.
/// BatchShape::row_length is the side of square pictures, or 0. A picture's loss is its share of what the
/// paper divides by the number of anchors that learn in the whole micro-batch, times `rows`: the mean over
/// them is the paper's.
std::shared_ptr<const engine::Objective> yolox_objective(YoloxOptions options);

/// Positions in Engine::output() after an evaluation: what yolox_decode makes, f32 [rows, anchors, 5 +
/// classes].
enum YoloxOutput : size_t { kDecoded = 0 };

/// Of what build_yolox makes, f32: the losses of pictures of height x width.
ir::ValueId yolox_losses(nn::Builder& builder, ir::ValueId raw, ir::ValueId targets, ir::ValueId l1_weight,
                         int64_t height, int64_t width);

}  // namespace hearth::tasks
