#pragma once

#include <array>
#include <string>
#include <vector>

#include "data/boxes/box.h"
#include "data/images/image.h"

namespace hearth::data {

/// A box to draw into an image, with a short text at its upper left corner.
struct LabeledBox {
  Box box;
  std::string text;
  std::array<uint8_t, 3> color = {};
};

/// Draws frames and texts into an RGB image, later ones over earlier ones. Letters are drawn as capitals;
/// characters without a glyph are skipped.
void draw_boxes(Image& image, const std::vector<LabeledBox>& boxes);

}  // namespace hearth::data
