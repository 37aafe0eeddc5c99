#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// YOLOX (Ge et al. 2021, arXiv 2107.08430) predicts `raw` [N, A, 5 + C] for each of A anchors: the offset
/// {x, y} of a box center from the upper left corner of the anchor's cell, in cells; the logarithms of the
/// box's width and height in cells; the logits of objectness and of C classes. Each stride (attribute
/// `strides`, in pixels) divides the image of `height` x `width` pixels into square cells; each cell is an
/// anchor.

/// SimOTA label assignment: selects, by the loss of the current predictions, the target box that each anchor
/// is trained to predict. Inputs are `raw`, f32, and `targets`, f32 [N, M, 5]: {class, center x, center y,
/// width, height} in pixels; rows with a class outside of [0, C) are unused. Outputs per anchor: the class,
/// i32 [N, A], -1 without a box (background); 1 with a box, otherwise 0, f32 [N, A]; the box {center x,
/// center y, width, height} in cells, relative to the corner of the anchor's cell, f32 [N, A, 4]; the IoU of
/// that box and the predicted box, f32 [N, A]. The latter two are 0 without a box. Computed in float64 with
/// ties broken by index, so that all devices agree.
extern const ir::OpDef simota;
/// Indices of the inputs and outputs of simota.
struct SimOtaIn {
  enum : size_t { raw, targets };
};
struct SimOtaOut {
  enum : size_t { label, assigned, box, iou };
};

/// Decodes `raw`, f32 [N, A, 5 + C], to an array of the same type: {center x, center y, width, height} in
/// pixels, then the probabilities of objectness and of each class.
extern const ir::OpDef yolox_decode;

}  // namespace hearth::ops
