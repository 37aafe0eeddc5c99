#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

bool is_frame(int64_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

}  // namespace

int exif_orientation(const ByteReader& exif) {
  constexpr int64_t kOrientation = 0x0112;
  constexpr std::string_view kPrefix("Exif\0\0", 6);
  const ByteReader tiff = exif.part(exif.holds(0, kPrefix) ? kPrefix.size() : 0, exif.bytes.size());
  const bool little = tiff.holds(0, "II");
  const auto number = [&](size_t at, size_t count) {
    return little ? tiff.little(at, count) : tiff.big(at, count);
  };
  // EXIF 2.32, section 4.6: the directory has a 2-byte count, then entries of 12 bytes.
  const auto directory = static_cast<size_t>(number(4, 4));
  const int64_t num_entries = number(directory, 2);
  for (int64_t i = 0; i < num_entries; ++i) {
    const size_t entry = directory + 2 + static_cast<size_t>(i) * 12;
    if (entry + 12 > tiff.bytes.size()) break;
    if (number(entry, 2) != kOrientation) continue;
    const int64_t value = number(entry + 8, 2);
    return value >= 1 && value <= 8 ? static_cast<int>(value) : 1;
  }
  return 1;
}

ImageHeader png_header(std::span<const std::byte> bytes, std::string_view /*name*/) {
  const ByteReader file{bytes};
  ImageHeader header{.height = file.big(20, 4), .width = file.big(16, 4)};
  // Reads the PNG chunks before the pixels (IDAT) only: later ones would require reading the full file.
  for (size_t at = 8; at + 8 <= bytes.size() && !file.holds(at + 4, "IDAT");) {
    const auto length = static_cast<size_t>(file.big(at, 4));
    if (file.holds(at + 4, "eXIf")) header.orientation = exif_orientation(file.part(at + 8, at + 8 + length));
    at += 12 + length;
  }
  return header;
}

ImageHeader jpeg_header(std::span<const std::byte> bytes, std::string_view /*name*/) {
  const ByteReader file{bytes};
  ImageHeader header;
  // Reads the JPEG segments up to the frame header, which contains the size.
  for (size_t at = 2; at + 4 <= bytes.size();) {
    if (file.byte(at) != 0xFF) break;
    const int64_t marker = file.byte(at + 1);
    if (marker == 0xFF) {
      ++at;
      continue;
    }
    const int64_t length = file.big(at + 2, 2);
    if (length < 2) break;
    if (is_frame(marker)) {
      header.height = file.big(at + 5, 2);
      header.width = file.big(at + 7, 2);
      break;
    }
    const size_t next = at + 2 + static_cast<size_t>(length);
    if (marker == 0xE1 && file.holds(at + 4, std::string_view("Exif\0\0", 6)))
      header.orientation = exif_orientation(file.part(at + 4, next));
    at = next;
  }
  return header;
}

}  // namespace hearth::data
