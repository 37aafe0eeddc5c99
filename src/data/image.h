#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::data {

/// 8-bit pixels, rows of height x width x channels (1 gray, 3 RGB).
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels;
};

/// Decodes a whole PNG (W3C PNG 2nd edition) or JPEG file held in memory into `channels` channels (1 or 3);
/// alpha is dropped, 16 bits become 8. UserError "NAME: what is wrong" for anything damaged, truncated, or
/// above 16384 pixels a side.
Image decode_png(std::span<const std::byte> bytes, int channels, std::string_view name);
Image decode_jpeg(std::span<const std::byte> bytes, int channels, std::string_view name);
/// Either, told apart by the first bytes.
Image decode_image(std::span<const std::byte> bytes, int channels, std::string_view name);

/// The bytes of a PNG file holding the image.
std::string encode_png(const Image& image);

/// Bilinear resize with half-pixel centres, averaging over the source when shrinking.
Image resize(const Image& image, int64_t height, int64_t width);

}  // namespace hearth::data
