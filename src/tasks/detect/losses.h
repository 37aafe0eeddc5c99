#pragma once

#include "nn/module.h"

namespace hearth::tasks {

/// Losses of detectors as graph nodes. Boxes are [..., 4], {center x, center y, width, height} in any unit;
/// functions of two boxes return [..., 1].

/// Returns the intersection over union; 0 if the union is empty.
ir::ValueId box_iou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);
/// Returns the generalized IoU: IoU - (enclosing - union) / enclosing, with the area of the smallest box
/// around both (Rezatofighi et al. 2019, arXiv 1902.09630).
ir::ValueId box_giou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);

/// Returns the cross-entropy of sigmoid(logits) with targets in [0, 1], elementwise.
ir::ValueId binary_cross_entropy(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets);
/// Returns the focal loss for targets 0 and 1: the cross-entropy weighted by `alpha` (target 1) or 1 -
/// `alpha`, and by (1 - p)^gamma with p the probability of the target (Lin et al. 2017, arXiv 1708.02002).
/// Elementwise.
ir::ValueId sigmoid_focal(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets, double alpha,
                          double gamma);

/// Returns `values` with another shape of as many elements.
ir::ValueId reshaped(nn::Builder& builder, ir::ValueId values, const Shape& shape);
/// Returns columns [begin, begin + count) of the last axis.
ir::ValueId columns(nn::Builder& builder, ir::ValueId values, int64_t begin, int64_t count);

/// Returns the sum of each row: [rows, K] -> [rows, 1].
ir::ValueId sum_of_row(nn::Builder& builder, ir::ValueId values);
/// Divides sums of losses [images] by the micro-batch's number of positive anchors (at least 1), times the
/// number of images: the mean over images is then the paper's loss. `learns`: 1 for anchors with a box, 0 for
/// others.
ir::ValueId per_positive_anchor(nn::Builder& builder, ir::ValueId sums, ir::ValueId is_positive);

}  // namespace hearth::tasks
