#pragma once

#include "data/image.h"
#include "data/outline.h"

namespace hearth::data {

/// Sets the pixels of a one-channel image that are inside an outline, as far as it lies in the image.
/// Polygons cover the pixels that pycocotools (rleFrPoly, even-odd) gives them; the time grows with their
/// corners times the image's width.
void fill_outline(const Outline& outline, uint8_t value, Image& mask);

}  // namespace hearth::data
