#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/choices.h"
#include "base/extent.h"
#include "base/path.h"

namespace hearth::data {

/// Maximum side in pixels, and maximum number of pixels, of images that decoders accept; checked before
/// memory for pixels is allocated.
inline constexpr int64_t kMaxImageSide = 16384;
inline constexpr int64_t kMaxImagePixels = int64_t{1} << 26;

/// 8-bit pixels in row-major order, height x width x channels (1 gray, 2 gray and alpha, 3 RGB, 4 RGBA).
struct Image {
  int64_t height = 0;
  int64_t width = 0;
  int64_t channels = 0;
  std::vector<uint8_t> pixels = {};

  Extent size() const { return {height, width}; }
};

/// Size in pixels of the part of a decoded image that shows the original. Smaller than the decoded size only
/// if a JPEG was decoded at a reduced scale that does not divide its size.
struct ImageArea {
  double height = 0;
  double width = 0;
};

/// Formats that decode_image reads, for messages: "PNG, JPEG, WebP, TIFF, BMP, GIF or AVIF". A build without
/// libavif has no AVIF.
extern const std::string_view kImageFormats;

/// Decodes an image file, detects the format by its first bytes, and converts to `channels` channels (0: as
/// in the file). 16-bit values are reduced to their high byte, animations to their first frame; gamma and
/// color profiles are not applied. Throws a UserError "NAME: what is wrong" for a file that is damaged,
/// truncated or too large.
Image decode_image(std::span<const std::byte> bytes, int channels, std::string_view name,
                   Exif exif = Exif::apply);
/// Decodes an image whose pixels are numbers, such as a mask: gray values and palette indices to one channel,
/// exactly as stored. Colors are decoded as by decode_image(). 16-bit gray values are kept if all are at most
/// 255, and divided by 257 if all are multiples of 257; otherwise UserError.
Image decode_numbers(std::span<const std::byte> bytes, std::string_view name, Exif exif = Exif::apply);

/// Mode of decoding gray values and palette indices: to colors, or to the stored numbers.
enum class Pixels : uint8_t { colors, numbers };
/// Decodes with the file's channels and without applying the orientation. May decode a JPEG at a reduced size
/// that is at least `min_size` along both sides. Reuses the memory of `image`.
ImageArea decode_stored(std::span<const std::byte> bytes, std::string_view name, Pixels pixels,
                        Extent min_size, Image& image);
/// Returns the EXIF orientation (1 to 8) to pass to orient() after decode_stored; 1 for Exif::ignore.
int orientation_of(std::span<const std::byte> bytes, std::string_view name, Exif exif);
/// Decodes a JPEG without applying its orientation, at an eighth, a quarter or half of its size if that is at
/// least `min_size` along both sides. Reuses the memory of `image`.
ImageArea decode_jpeg(std::span<const std::byte> bytes, std::string_view name, Image& image,
                      Extent min_size = kMaxImageSide);

/// Size and EXIF orientation (1 to 8; 1 is upright) in the header of an image file.
struct ImageHeader {
  int64_t height = 0;  ///< in pixels, as stored
  int64_t width = 0;
  int orientation = 1;

  /// True if the orientation swaps width and height.
  bool is_sideways() const { return orientation >= 5; }
  Extent stored() const { return {height, width}; }
  Extent upright() const { return is_sideways() ? Extent(width, height) : stored(); }
  /// Returns the size of the image that decode_image() returns.
  Extent size(Exif exif) const { return exif == Exif::apply ? upright() : stored(); }
};
/// Reads the header without decoding pixels; throws a UserError "NAME: ..." if it has no size within the
/// limits.
ImageHeader read_image_header(std::span<const std::byte> bytes, std::string_view name);

/// True if the file's name has an extension of a format that decode_image reads.
bool is_image_file(const fs::path& path);
/// True if the file's name has the extension of an image format that is not supported, such as .heic.
bool is_unsupported_image_file(const fs::path& path);

/// Throws a UserError "NAME: ..." if a side or the number of pixels exceeds the limits.
void check_image_size(int64_t height, int64_t width, std::string_view name);

/// Throws a UserError "NAME: ..." if a compressed file of `file_bytes` bytes cannot contain `size` units
/// (pixels or bytes), because its format stores at most `max_per_byte` units per byte. Protects against
/// headers that claim a huge image (decompression bombs).
void check_density(int64_t size, int64_t max_per_byte, size_t file_bytes, std::string_view name);

/// Converts between gray and RGB, with or without alpha, like PIL's convert: alpha is dropped or set to 255;
/// gray is the ITU-R 601 luma.
Image convert(Image image, int64_t channels);

/// Returns a PNG file with the image (1 or 3 channels).
std::string encode_png(const Image& image);
/// Returns the PNG file with added key-value texts in UTF-8 (iTXt chunks, PNG 3rd edition, 11.3.3.4).
std::string with_texts(std::string_view png, std::span<const std::pair<std::string, std::string>> texts);

/// Returns a JPEG file with the RGB image. `quality`: libjpeg's scale from 1 to 100.
std::string encode_jpeg(const Image& image, int quality);

/// Returns a PNG file of palette indices, each below the number of colors (at most 256).
std::string encode_png(const Image& indices, std::span<const std::array<uint8_t, 3>> palette);

/// Rotates and mirrors the pixels of an image with this EXIF orientation (1 to 8) to be upright.
Image orient(Image image, int orientation);

/// Resizes bilinearly with half-pixel centers; averages over source pixels when shrinking.
Image resize(const Image& image, Extent size);

/// Source pixels and weights of each target pixel along one axis. Target pixel i is the weighted sum of
/// `count` source pixels from `first` on, described by taps[i].
struct ResizeTaps {
  struct Tap {
    int64_t first = 0;
    size_t weight = 0;  ///< index of the first source pixel's weight in `weights`
    int64_t count = 0;
  };
  std::vector<Tap> taps;
  std::vector<float> weights;
};

/// Buffers that are reused for many images; they grow only for an image larger than all earlier ones.
struct ImageBuffers {
  Image decoded, converted, resized, upright;
  ResizeTaps rows, columns;
  std::vector<float> wide;
};

/// Resizes without allocating memory once the buffers are large enough. Returns a reference to `image` or
/// into `buffers`.
const Image& resize(const Image& image, Extent size, ImageBuffers& buffers);

/// Decodes and resizes without allocating memory once the buffers are large enough; the result is in
/// `buffers`.
const Image& read_image(std::span<const std::byte> bytes, int channels, Extent size, std::string_view name,
                        ImageBuffers& buffers, Exif exif = Exif::apply);

/// Decodes without resizing, and without allocating memory once the buffers are large enough; the result is
/// in `buffers`.
const Image& read_image(std::span<const std::byte> bytes, int channels, std::string_view name,
                        ImageBuffers& buffers, Exif exif = Exif::apply);

/// Returns the image with each pixel repeated `factor` times along both axes (nearest-neighbor upscaling).
Image enlarge(const Image& image, int64_t factor);

}  // namespace hearth::data
