#pragma once

#include <array>
#include <span>
#include <string_view>

#include "nn/module.h"

namespace hearth::models {

/// YOLOX (Ge et al. 2021, arXiv 2107.08430): CSPDarknet, PAFPN and a decoupled, anchor-free head. Tensors
/// have the names and layouts of Megvii's checkpoints, which were trained on BGR images from 0 to 255. To use
/// them for RGB images, reverse the three channels of each of the four pixels in the stem's weight [O, 4 * 3,
/// 3, 3].
struct YoloxSize {
  std::string_view name;
  double depth = 1, width = 1;  ///< number of blocks (depth) and of channels (width), relative to yolox_l
  bool depthwise = false;       ///< true if each 3x3 convolution is a depthwise and a pointwise convolution
};

/// Returns all sizes, from yolox_pico (yolox_nano without depthwise convolutions) to yolox_l.
std::span<const YoloxSize> yolox_sizes();
/// Returns the size with that name; throws a UserError with the most similar name if there is none.
const YoloxSize& find_yolox(std::string_view name);

inline constexpr std::array<int64_t, 3> kYoloxStrides = {8, 16, 32};
/// Returns the number of cells of all levels in an image whose sides are divisible by 32.
int64_t num_yolox_anchors(int64_t height, int64_t width);

/// Builds the network from images [N, H, W, 3] to predictions per anchor (ops/detect/detect.h), [N, A, 5 +
/// C]. Throws a UserError for image sides not divisible by 32.
ir::ValueId build_yolox(nn::Builder& builder, ir::ValueId images, const YoloxSize& size, int64_t num_classes);

}  // namespace hearth::models
