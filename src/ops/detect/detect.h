#pragma once

#include "ir/op_def.h"

namespace hearth::ops {

/// What YOLOX predicts (Ge et al. 2021, arXiv 2107.08430) is `raw` [N, A, 5 + C], for each of A anchors: how
/// far the center of a box lies from the corner of the anchor's cell, in cells; logarithms of width and
/// height in cells; logits of objectness and of C classes. Anchors are the cells of each of `strides`, row by
/// row, over pictures of `height` x `width` pixels.

/// SimOTA: which anchor of each picture learns which box, by the loss that it would have now. Of `raw` f32
/// and of `targets` f32 [N, M, 5], {class, center x, center y, width, height} in pixels (a class outside [0,
/// C): no box), it makes the class of each anchor i32 [N, A] (-1: background), 1 where it has one f32 [N, A],
/// its box {x, y, width, height} f32 [N, A, 4] in cells from the corner of its own, and the IoU of that with
/// what is predicted f32 [N, A]; 0 elsewhere. Computed in float64, ties by index, so that all devices decide
/// alike.
extern const ir::OpDef simota;
struct SimOtaIn {
  enum : size_t { raw, targets };
};
struct SimOtaOut {
  enum : size_t { label, assigned, box, iou };
};

/// What is predicted, of `raw` f32: {center x, center y, width, height} in pixels, and probabilities of an
/// object and of each class, f32 [N, A, 5 + C].
extern const ir::OpDef yolox_decode;

}  // namespace hearth::ops
