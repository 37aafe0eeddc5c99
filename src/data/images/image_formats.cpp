#include "data/images/image_formats.h"

#include <algorithm>
#include <array>
#include <string>

#include "base/error.h"
#include "base/text.h"

namespace hearth::data {

#ifdef HEARTH_AVIF
const std::string_view kImageFormats = "PNG, JPEG, WebP, TIFF, BMP, GIF or AVIF";
#else
const std::string_view kImageFormats = "PNG, JPEG, WebP, TIFF, BMP or GIF";
#endif

namespace {

struct ImageFormat {
  std::array<std::string_view, 4> extensions;
  bool (*begins)(const ByteReader& file);
  ImageHeader (*header)(std::span<const std::byte> bytes, std::string_view name);
  void (*decode)(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image);
};

/// Table of image formats. To add one, write a decoder and add a row here.
constexpr auto kFormats = std::to_array<ImageFormat>({
    {{".png"}, [](const ByteReader& file) { return file.holds(0, "\x89P"); }, png_header, decode_png},
    // There is no decode function here: decode_jpeg() is called separately, because it needs the minimum
    // size.
    {{".jpg", ".jpeg", ".jpe", ".jfif"},
     [](const ByteReader& file) { return file.holds(0, "\xFF\xD8"); },
     jpeg_header,
     nullptr},
    {{".webp"},
     [](const ByteReader& file) { return file.holds(0, "RIFF") && file.holds(8, "WEBP"); },
     webp_header,
     decode_webp},
    // Version number after the byte order mark: 42 is TIFF, 43 is BigTIFF.
    {{".tif", ".tiff"},
     [](const ByteReader& file) {
       return (file.holds(0, "II") && file.byte(3) == 0 && (file.byte(2) == 42 || file.byte(2) == 43)) ||
              (file.holds(0, "MM") && file.byte(2) == 0 && (file.byte(3) == 42 || file.byte(3) == 43));
     },
     tiff_header,
     decode_tiff},
    {{".bmp", ".dib"}, [](const ByteReader& file) { return file.holds(0, "BM"); }, bmp_header, decode_bmp},
    {{".gif"}, [](const ByteReader& file) { return file.holds(0, "GIF8"); }, gif_header, decode_gif},
#ifdef HEARTH_AVIF
    {{".avif", ".avifs"},
     [](const ByteReader& file) { return file.holds(4, "ftypavi") || file.holds(4, "ftypmif1"); },
     avif_header,
     decode_avif},
#endif
});

constexpr auto kUnsupported = std::to_array<std::string_view>(
    {".avif", ".avifs", ".heic", ".heif", ".jxl", ".jxr", ".jp2", ".j2k", ".psd", ".svg", ".ppm", ".pgm",
     ".pbm",  ".pnm",   ".tga",  ".exr",  ".hdr", ".dng", ".cr2", ".nef", ".arw", ".pcx", ".qoi"});

std::string extension_of(const fs::path& path) { return lowered(path.extension().string()); }

const ImageFormat& format_of(std::span<const std::byte> bytes, std::string_view name) {
  if (bytes.empty()) user_error("{}: the file is empty; replace it with an image ({})", name, kImageFormats);
  const ByteReader file{bytes};
  const auto found =
      std::ranges::find_if(kFormats, [&](const ImageFormat& format) { return format.begins(file); });
  if (found == kFormats.end())
    user_error("{}: this is not an image of a supported format; convert it to one ({})", name, kImageFormats);
  return *found;
}

}  // namespace

ImageArea decode_stored(std::span<const std::byte> bytes, std::string_view name, Pixels pixels,
                        Extent min_size, Image& image) {
  const ImageFormat& format = format_of(bytes, name);
  if (format.decode == nullptr) return decode_jpeg(bytes, name, image, min_size);
  format.decode(bytes, name, pixels, image);
  return {static_cast<double>(image.height), static_cast<double>(image.width)};
}

int orientation_of(std::span<const std::byte> bytes, std::string_view name, Exif exif) {
  return exif == Exif::ignore ? 1 : format_of(bytes, name).header(bytes, name).orientation;
}

ImageHeader read_image_header(std::span<const std::byte> bytes, std::string_view name) {
  const ImageHeader header = format_of(bytes, name).header(bytes, name);
  if (header.height < 1 || header.width < 1)
    user_error("{}: the image has no width or height; replace the file", name);
  check_image_size(header.height, header.width, name);
  return header;
}

bool is_image_file(const fs::path& path) {
  const std::string extension = extension_of(path);
  return !extension.empty() && std::ranges::any_of(kFormats, [&](const ImageFormat& format) {
    return std::ranges::find(format.extensions, extension) != format.extensions.end();
  });
}

bool is_unsupported_image_file(const fs::path& path) {
  return !is_image_file(path) && std::ranges::find(kUnsupported, extension_of(path)) != kUnsupported.end();
}

void narrow(std::span<const uint16_t> numbers, std::string_view name, Image& image) {
  const auto wide = std::ranges::find_if(numbers, [](uint16_t number) { return number > 255; });
  const int divisor = wide == numbers.end() ? 1 : 257;
  image.pixels.resize(numbers.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] % divisor != 0)
      user_error(
          "{}: 16-bit values have to be at most 255, or all multiples of 257, but {} and {} occur; save it "
          "with 8 bits",
          name, *wide, numbers[i]);
    image.pixels[i] = static_cast<uint8_t>(numbers[i] / divisor);
  }
}

}  // namespace hearth::data
