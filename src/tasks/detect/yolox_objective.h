#pragma once

#include <memory>
#include <string>

#include "engine/objective.h"
#include "tasks/image_teacher.h"

namespace hearth::tasks {

struct YoloxOptions {
  std::string model = "yolox_s";  ///< name of one of models::yolox_sizes()
  int64_t num_classes = 80;
  int64_t height = 640,
          width = 640;           ///< image size if all batches have one size (row_length 0); multiples of 32
  int64_t max_boxes = 120;       ///< max boxes per image
  recipe::Distill distill = {};  ///< loss with a teacher
  std::string teacher = {};      ///< name of the teacher's model, if there is a teacher
};

/// Returns the objective of YOLOX (Ge et al. 2021, arXiv 2107.08430). A micro-batch is {images f32 [rows,
/// height, width, 3] in RGB from 0 to 255, targets f32 [rows, max_boxes, 5] as in ops/detect/detect.h, weight
/// of the L1 loss f32 [rows]: 1 in the last epochs, 0 before}; a sample is an image. BatchShape::row_length
/// is the side of square images, or 0. The loss of an image is its sum of losses times `rows`, divided by the
/// number of positive anchors in the micro-batch, so that the mean over images is the paper's loss.
std::shared_ptr<const engine::Objective> yolox_objective(YoloxOptions options);

/// Indices for Engine::output() after an evaluation: the output of yolox_decode, f32 [rows, anchors, 5 +
/// classes].
enum YoloxOutput : size_t { kDecoded = 0 };

/// Returns the loss of each image, f32 [rows]. `raw`: output of models::build_yolox, in f32; `targets`,
/// `l1_weight`: as in the micro-batch of yolox_objective(); `height`, `width`: size of the images; `teacher`:
/// has the divergence of the class logits of each anchor, which replaces a part of the class loss.
ir::ValueId yolox_losses(nn::Builder& builder, ir::ValueId raw, ir::ValueId targets, ir::ValueId l1_weight,
                         int64_t height, int64_t width, const TeacherLoss& teacher = {});

}  // namespace hearth::tasks
