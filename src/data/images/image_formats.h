#pragma once

#include <span>
#include <string_view>

#include "data/images/image.h"

/// Decoders of the image formats, called by the functions in image.h. They do not apply the EXIF orientation,
/// and check the size in the header before they allocate memory for pixels.
namespace hearth::data {

/// Reader of integers in the bytes of a file; bytes past its end are zeros.
struct ByteReader {
  std::span<const std::byte> bytes;

  uint8_t byte(size_t at) const { return at < bytes.size() ? std::to_integer<uint8_t>(bytes[at]) : 0; }
  int64_t big(size_t at, size_t count) const {
    int64_t value = 0;
    for (size_t i = 0; i < count; ++i) value = value << 8 | byte(at + i);
    return value;
  }
  int64_t little(size_t at, size_t count) const {
    int64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | byte(at + i);
    return value;
  }
  bool holds(size_t at, std::string_view text) const {
    for (size_t i = 0; i < text.size(); ++i)
      if (byte(at + i) != static_cast<unsigned char>(text[i])) return false;
    return at + text.size() <= bytes.size();
  }
  /// Returns the bytes [first, last), clipped to the end of the file.
  ByteReader part(size_t first, size_t last) const {
    last = std::min(last, bytes.size());
    return {first < last ? bytes.subspan(first, last - first) : std::span<const std::byte>()};
  }
};

/// Returns the orientation in EXIF data, which may start with "Exif\0\0"; 1 if it has none.
int exif_orientation(const ByteReader& exif);

/// Converts 16-bit gray values to the 8-bit pixels of `image` by the rule of decode_numbers(), or throws its
/// UserError. Height and width of `image` must be set.
void narrow(std::span<const uint16_t> numbers, std::string_view name, Image& image);

/// Decode a file of one format into `image`. Throws a UserError "NAME: ..." if the file is damaged or too
/// large.
void decode_png(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
void decode_webp(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
void decode_tiff(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
void decode_bmp(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
void decode_gif(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
void decode_avif(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);

/// Read size and orientation from the header of one format. A missing size is 0; sizes are not checked
/// against the limits.
ImageHeader png_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader jpeg_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader webp_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader tiff_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader bmp_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader gif_header(std::span<const std::byte> bytes, std::string_view name);
ImageHeader avif_header(std::span<const std::byte> bytes, std::string_view name);

}  // namespace hearth::data
