#pragma once

#include <memory>

#include "data/masks/masks.h"

namespace hearth::data {

/// True if the path is a label file, or a folder without a mask layout that has labels in a format with
/// outlines: COCO, YOLO, Label Studio, CVAT or LabelMe.
bool is_outlined(const MaskOptions& options);
/// Opens images whose masks are drawn from the outlines of labeled objects (data/boxes/boxes.h). Class 0 is
/// the background, followed by the labels' classes. The box of an object without an outline is filled.
std::unique_ptr<MaskedImages> open_outlined_masks(const MaskOptions& options);
/// Implements decide_masks() for outlines: the classes are those of the labels.
MaskDecision decide_outlined_masks(const MaskOptions& train, const MaskOptions& held_out);

}  // namespace hearth::data
