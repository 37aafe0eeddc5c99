#pragma once

#include "data/images/image.h"
#include "data/masks/outline.h"

namespace hearth::data {

/// Sets the pixels of a one-channel image that are inside an outline to `value`; parts outside of the image
/// are ignored. Polygons cover the same pixels as in pycocotools (rleFrPoly, even-odd rule). Time is
/// proportional to corners times image width.
void fill_outline(const Outline& outline, uint8_t value, Image& mask);

}  // namespace hearth::data
