#pragma once

#include <array>
#include <span>
#include <string_view>

#include "nn/module.h"

namespace hearth::models {

/// YOLOX (Ge et al. 2021, arXiv 2107.08430): CSPDarknet, PAFPN and a decoupled head without anchor boxes.
/// Tensors have the names and layouts of Megvii's checkpoints. Those were trained on pictures in BGR from 0
/// to 255; for RGB, turn over the channels of each of the four pixels of the stem's weight [O, 4 * 3, 3, 3].
struct YoloxSize {
  std::string_view name;
  double depth = 1, width = 1;  ///< how many blocks, and how many channels, of those of yolox_l
  bool depthwise = false;       ///< 3x3 convolutions are depthwise and pointwise ones
};

/// From yolox_pico, which is yolox_nano without depthwise convolutions, to yolox_l.
std::span<const YoloxSize> yolox_sizes();
/// UserError with the nearest name for one that is none.
const YoloxSize& find_yolox(std::string_view name);

inline constexpr std::array<int64_t, 3> kYoloxStrides = {8, 16, 32};
/// Cells of those strides in a picture whose sides they divide.
int64_t num_yolox_anchors(int64_t height, int64_t width);

/// From pictures [N, H, W, 3] to what is predicted for each anchor (ops/detect/detect.h), [N, A, 5 + C].
/// UserError for sides that 32 does not divide.
ir::ValueId build_yolox(nn::Builder& builder, ir::ValueId images, const YoloxSize& size, int64_t num_classes);

}  // namespace hearth::models
