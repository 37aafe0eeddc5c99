#include <algorithm>
#include <cctype>
#include <string>

#include "base/error.h"
#include "data/image.h"

namespace hearth::data {
namespace {

/// Bytes of a file from which numbers are taken; those that are not there are zeros.
struct Reader {
  std::span<const std::byte> bytes;

  int64_t byte(size_t at) const { return at < bytes.size() ? std::to_integer<int64_t>(bytes[at]) : 0; }
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
};

/// The orientation in the TIFF of an EXIF segment; 1 where it has none (EXIF 2.32, 4.6).
int exif_orientation(const Reader& tiff) {
  constexpr int64_t kOrientation = 0x0112;
  const bool little = tiff.holds(0, "II");
  const auto number = [&](size_t at, size_t count) {
    return little ? tiff.little(at, count) : tiff.big(at, count);
  };
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

bool is_frame(int64_t marker) {
  return marker >= 0xC0 && marker <= 0xCF && marker != 0xC4 && marker != 0xC8 && marker != 0xCC;
}

/// Segment after segment up to the frame's header, which has the size.
ImageHeader read_jpeg_header(const Reader& file) {
  ImageHeader header;
  for (size_t at = 2; at + 4 <= file.bytes.size();) {
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
    if (marker == 0xE1 && file.holds(at + 4, std::string_view("Exif\0\0", 6))) {
      const size_t first = at + 10;
      const size_t last = std::min(file.bytes.size(), at + 2 + static_cast<size_t>(length));
      if (first < last) header.orientation = exif_orientation({file.bytes.subspan(first, last - first)});
    }
    at += 2 + static_cast<size_t>(length);
  }
  return header;
}

}  // namespace

ImageHeader read_image_header(std::span<const std::byte> bytes, std::string_view name) {
  const Reader file{bytes};
  ImageHeader header;
  if (file.holds(0, "\x89PNG")) {
    header = {.height = file.big(20, 4), .width = file.big(16, 4)};
  } else if (file.holds(0, "\xFF\xD8")) {
    header = read_jpeg_header(file);
  } else {
    user_error("{}: expected a PNG or a JPEG, but its first bytes are those of neither", name);
  }
  if (header.height < 1 || header.width < 1)
    user_error("{}: expected a whole PNG or JPEG, but its header has no size", name);
  check_image_size(header.height, header.width, name);
  return header;
}

bool is_image_file(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

}  // namespace hearth::data
