#pragma once

#include <memory>

#include "data/masks.h"

namespace hearth::data {

/// True if the options name a label file, or a folder in no layout of masks that has labels which may have
/// outlines: COCO, YOLO, Label Studio, CVAT or LabelMe.
bool is_outlined(const MaskOptions& options);
/// Masks drawn from the outlines of objects (data/boxes.h): class 0 is the background, the others are the
/// labels' classes. An object without an outline is its box.
std::unique_ptr<MaskedImages> open_outlined_masks(const MaskOptions& options);
/// decide_masks for these: the labels' classes.
MaskDecision decide_outlined_masks(const MaskOptions& train, const MaskOptions& held_out);

}  // namespace hearth::data
