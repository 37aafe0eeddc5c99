#pragma once

#include "base/function_ref.h"
#include "nn/module.h"
#include "tasks/image_teacher.h"

namespace hearth::tasks {

/// The functions below add losses of detectors to a graph. Boxes are [..., 4], {center x, center y, width,
/// height} in any unit; functions of two boxes return [..., 1].

/// Returns the intersection over union of two boxes; 0 if the union is empty.
ir::ValueId box_iou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);
/// Returns the generalized IoU: IoU - (enclosing - union) / enclosing, where `enclosing` is the area of the
/// smallest box that contains both (Rezatofighi et al. 2019, arXiv 1902.09630).
ir::ValueId box_giou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);

/// Returns the cross-entropy of sigmoid(logits) with targets in [0, 1], elementwise.
ir::ValueId binary_cross_entropy(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets);
/// Returns the elementwise focal loss for targets 0 and 1 (Lin et al. 2017, arXiv 1708.02002): the
/// cross-entropy times `alpha` for target 1 or 1 - `alpha` for target 0, times (1 - p)^gamma, where p is the
/// predicted probability of the target.
ir::ValueId sigmoid_focal(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets, double alpha,
                          double gamma);

/// Reshapes `values` to a shape with the same number of elements.
ir::ValueId reshaped(nn::Builder& builder, ir::ValueId values, const Shape& shape);
/// Returns columns [begin, begin + count) of the last axis.
ir::ValueId columns(nn::Builder& builder, ir::ValueId values, int64_t begin, int64_t count);

/// Returns the sum of each row: [rows, K] -> [rows, 1].
ir::ValueId sum_of_row(nn::Builder& builder, ir::ValueId values);
/// Compares the class logits of sigmoids with a teacher's, in training. Without a teacher, returns no loss.
/// `logits`: [..., C]; `build_teacher`: adds the teacher and returns its logits in the same shape.
TeacherLoss compare_classes(nn::Builder& builder, const recipe::Distill& distill, ir::ValueId logits,
                            FunctionRef<ir::ValueId()> build_teacher);
/// Returns sums * num_images / max(1, number of positive anchors in the micro-batch), so that the mean over
/// images is the paper's loss. `sums`: sum of losses of each image, [images]; `is_positive`: 1 for anchors
/// with a box, 0 for others.
ir::ValueId per_positive_anchor(nn::Builder& builder, ir::ValueId sums, ir::ValueId is_positive);

}  // namespace hearth::tasks
