#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// YOLOX (Ge et al. 2021, arXiv 2107.08430) predicts `raw` [N, A, 5 + C] for each of A anchors: the offset of
/// a box center from the corner of the anchor's cell, in cells; the logarithms of width and height in cells;
/// the logits of objectness and of C classes. Anchors are the cells of each of `strides`, row by row, over
/// images of `height` x `width` pixels.

/// SimOTA label assignment: selects which anchor of each image learns which box, by the current loss. Inputs
/// are `raw`, f32, and `targets`, f32 [N, M, 5], with {class, center x, center y, width, height} in pixels (a
/// class outside of [0, C): no box). Outputs, 0 for anchors without a box unless noted: the class of each
/// anchor, i32 [N, A] (-1: background); 1 if it has a box, f32 [N, A]; the box {x, y, width, height} in
/// cells, relative to the corner of the anchor's cell, f32 [N, A, 4]; the IoU of that box with the predicted
/// one, f32 [N, A]. Computed in float64 with ties broken by index, so that all devices agree.
extern const ir::OpDef simota;
/// Indices of the inputs and outputs of simota.
struct SimOtaIn {
  enum : size_t { raw, targets };
};
struct SimOtaOut {
  enum : size_t { label, assigned, box, iou };
};

/// Decodes `raw`, f32, to {center x, center y, width, height} in pixels and the probabilities of objectness
/// and of each class, f32 [N, A, 5 + C].
extern const ir::OpDef yolox_decode;

}  // namespace hearth::ops
