#pragma once

#include "nn/module.h"

namespace hearth::tasks {

/// Losses of detectors as nodes. Boxes are [..., 4], {center x, center y, width, height} in any unit; what is
/// made of two of them is [..., 1].

/// How much of what either box covers both cover; 0 where neither covers anything.
ir::ValueId box_iou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);
/// The IoU less what neither covers of the smallest box around both, as its share (Rezatofighi et al. 2019,
/// arXiv 1902.09630).
ir::ValueId box_giou(nn::Builder& builder, ir::ValueId a, ir::ValueId b);

/// Cross-entropy of sigmoid(logits) with targets in [0, 1], elementwise.
ir::ValueId binary_cross_entropy(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets);
/// The same for targets 0 and 1, weighted by `alpha` and 1 - `alpha`, and by the probability of being wrong
/// to the power of `gamma` (Lin et al. 2017, arXiv 1708.02002).
ir::ValueId sigmoid_focal(nn::Builder& builder, ir::ValueId logits, ir::ValueId targets, double alpha,
                          double gamma);

/// What `values` is for other axes of the same number of elements.
ir::ValueId reshaped(nn::Builder& builder, ir::ValueId values, const Shape& shape);
/// Columns [begin, begin + count) of the last axis.
ir::ValueId columns(nn::Builder& builder, ir::ValueId values, int64_t begin, int64_t count);

/// [rows, K] -> [rows, 1].
ir::ValueId sum_of_row(nn::Builder& builder, ir::ValueId values);
/// Of `learns`, 1 for each anchor that learns a box and 0 for the others: the sums [pictures] of losses that
/// a paper divides by the number of such anchors in the whole micro-batch (at least 1), so that their mean
/// over pictures is the paper's loss.
ir::ValueId per_learning_anchor(nn::Builder& builder, ir::ValueId sums, ir::ValueId learns);

}  // namespace hearth::tasks
