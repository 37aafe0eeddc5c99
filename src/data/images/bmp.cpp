#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

enum : int64_t { kPlain = 0, kRle8 = 1, kRle4 = 2, kBitFields = 3, kAlphaBitFields = 6 };
// Maximum number of pixels per byte of run-length encoded data: two bytes encode up to 255 pixels.
constexpr int64_t kMaxRunRatio = 128;

/// Contents of a BMP's headers: BITMAPFILEHEADER and the info header after it, of any version.
struct BmpHeader {
  int64_t height = 0, width = 0;
  bool top_down = false;
  int64_t bits = 0, compression = kPlain;
  size_t pixels = 0;                    ///< file offset of the pixels in bytes
  size_t palette = 0, color_bytes = 4;  ///< file offset of the palette, and bytes per palette color
  int64_t num_colors = 0;
  /// Bit masks of red, green, blue and alpha in a pixel of 16 or 32 bits.
  std::array<uint32_t, 4> masks = {};

  bool is_indexed() const { return bits <= 8; }
  int64_t row_bytes() const { return (bits * width + 31) / 32 * 4; }
};

void read_masks(const ByteReader& file, int64_t info_bytes, BmpHeader& header) {
  if (header.compression == kPlain) {
    header.masks = header.bits == 16 ? std::array<uint32_t, 4>{0x7C00, 0x3E0, 0x1F, 0}
                                     : std::array<uint32_t, 4>{0xFF0000, 0xFF00, 0xFF, 0};
    return;
  }
  const bool has_alpha = header.compression == kAlphaBitFields || info_bytes >= 56;
  for (size_t i = 0; i < (has_alpha ? 4U : 3U); ++i)
    header.masks.at(i) = static_cast<uint32_t>(file.little(54 + 4 * i, 4));
}

BmpHeader read_header(std::span<const std::byte> bytes, std::string_view name) {
  const ByteReader file{bytes};
  const int64_t info_bytes = file.little(14, 4);
  const bool is_core = info_bytes == 12;
  BmpHeader header{.pixels = static_cast<size_t>(file.little(10, 4)),
                   .palette = static_cast<size_t>(14 + info_bytes),
                   .color_bytes = is_core ? 3U : 4U};
  if (is_core) {
    header.width = file.little(18, 2);
    header.height = file.little(20, 2);
    header.bits = file.little(24, 2);
  } else {
    header.width = file.little(18, 4);
    const auto rows = static_cast<int32_t>(file.little(22, 4));
    header.top_down = rows < 0;
    header.height = std::abs(static_cast<int64_t>(rows));
    header.bits = file.little(28, 2);
    header.compression = file.little(30, 4);
    header.num_colors = file.little(46, 4);
  }
  const bool knows = is_core || info_bytes == 40 || info_bytes == 52 || info_bytes == 56 ||
                     (info_bytes == 64 && header.compression <= kRle4) || info_bytes == 108 ||
                     info_bytes == 124;
  if (!knows || bytes.size() < header.palette)
    user_error("{}: the BMP's header is damaged or of an unsupported kind; save the image as PNG", name);
  return header;
}

void check_header(const BmpHeader& header, std::string_view name) {
  const int64_t bits = header.bits, compression = header.compression;
  const bool is_packed = (compression == kRle8 && bits == 8) || (compression == kRle4 && bits == 4);
  const bool has_masks = compression == kBitFields || compression == kAlphaBitFields;
  const bool fits = compression == kPlain
                        ? bits == 1 || bits == 4 || bits == 8 || bits == 16 || bits == 24 || bits == 32
                        : is_packed || (has_masks && (bits == 16 || bits == 32));
  if (!fits)
    user_error("{}: a BMP of {} bits per pixel with compression {} is not supported; save the image as PNG",
               name, bits, compression);
  if (header.height < 1 || header.width < 1)
    user_error("{}: the BMP has no width or height; replace the file", name);
  check_image_size(header.height, header.width, name);
}

/// Extracts a channel of a pixel by its bit mask, scaled to 8 bits.
uint8_t channel_of(uint32_t pixel, uint32_t mask) {
  const uint64_t maximum = mask >> std::countr_zero(mask);
  const uint64_t value = (pixel & mask) >> std::countr_zero(mask);
  return static_cast<uint8_t>((value * 255 + maximum / 2) / maximum);
}

class BmpDecoder {
 public:
  BmpDecoder(std::span<const std::byte> bytes, std::string_view name)
      : file_{bytes}, name_(name), header_(read_header(bytes, name)) {
    check_header(header_, name);
    read_masks(file_, file_.little(14, 4), header_);
    if (header_.is_indexed()) count_colors();
  }

  void decode(Pixels pixels, Image& image) {
    image.height = header_.height;
    image.width = header_.width;
    if (!header_.is_indexed()) return decode_colors(image);
    image.channels = 1;
    if (header_.compression == kPlain) {
      decode_indices(image);
    } else {
      decode_runs(image);
    }
    if (const int64_t largest = *std::ranges::max_element(image.pixels); largest >= header_.num_colors)
      user_error("{}: a pixel has color {} of a palette of {} colors; replace the file", name_, largest,
                 header_.num_colors);
    if (pixels == Pixels::colors) color(image);
  }

 private:
  [[noreturn]] void refuse_short() const {
    user_error("{}: the BMP ends before its last pixel; replace the file", name_);
  }

  /// Sets the number of palette entries: at most as many as fit before the pixels.
  void count_colors() {
    const int64_t maximum = int64_t{1} << header_.bits;
    if (header_.num_colors == 0 || header_.num_colors > maximum) header_.num_colors = maximum;
    const int64_t room = static_cast<int64_t>(header_.pixels) - static_cast<int64_t>(header_.palette);
    header_.num_colors =
        std::min(header_.num_colors, std::max<int64_t>(room, 0) / static_cast<int64_t>(header_.color_bytes));
  }

  /// Returns the file offset of row y of the image. expect_rows() guarantees that the full row is in the
  /// file.
  size_t row_at(int64_t y) const {
    const int64_t row = header_.top_down ? y : header_.height - 1 - y;
    return header_.pixels + static_cast<size_t>(row * header_.row_bytes());
  }
  /// Throws a UserError if the file is too short for all rows. The padding bytes of the last row may be
  /// missing.
  void expect_rows() const {
    const int64_t size = header_.row_bytes() * (header_.height - 1) + (header_.bits * header_.width + 7) / 8;
    if (static_cast<int64_t>(header_.pixels) + size > std::ssize(file_.bytes)) refuse_short();
  }

  void decode_colors(Image& image) const {
    expect_rows();
    const auto& masks = header_.masks;
    if (header_.bits != 24 && (masks[0] == 0 || masks[1] == 0 || masks[2] == 0))
      user_error("{}: the BMP has no bits for red, green or blue; save the image as PNG", name_);
    image.channels = header_.bits != 24 && masks[3] != 0 ? 4 : 3;
    image.pixels.resize(static_cast<size_t>(image.height * image.width * image.channels));
    const auto pixel_bytes = static_cast<size_t>(header_.bits / 8);
    uint8_t* out = image.pixels.data();
    for (int64_t y = 0; y < image.height; ++y) {
      size_t at = row_at(y);
      for (int64_t x = 0; x < image.width; ++x, at += pixel_bytes) {
        const auto pixel = static_cast<uint32_t>(file_.little(at, pixel_bytes));
        for (size_t c = 0; c < static_cast<size_t>(image.channels); ++c)
          *out++ = header_.bits == 24 ? static_cast<uint8_t>(pixel >> (16 - 8 * c))
                                      : channel_of(pixel, masks.at(c));
      }
    }
  }

  void decode_indices(Image& image) const {
    expect_rows();
    image.pixels.resize(static_cast<size_t>(image.height * image.width));
    const auto bits = static_cast<size_t>(header_.bits);
    uint8_t* out = image.pixels.data();
    for (int64_t y = 0; y < image.height; ++y) {
      const size_t row = row_at(y);
      for (size_t x = 0; x < static_cast<size_t>(image.width); ++x) {
        const size_t bit = x * bits;
        *out++ = static_cast<uint8_t>(file_.byte(row + bit / 8) >> (8 - bits - bit % 8) & ((1U << bits) - 1));
      }
    }
  }

  /// Decodes a run-length encoded image (BI_RLE8, BI_RLE4). Pixels outside of all runs get palette index 0.
  void decode_runs(Image& image) const {
    check_density(image.height * image.width, kMaxRunRatio, file_.bytes.size(), name_);
    image.pixels.assign(static_cast<size_t>(image.height * image.width), 0);
    const bool halves = header_.compression == kRle4;
    int64_t x = 0, y = 0;
    const auto put = [&](int64_t count, auto&& byte_of) {
      for (int64_t i = 0; i < count; ++i, ++x) {
        const uint8_t byte = byte_of(static_cast<size_t>(halves ? i / 2 : i));
        if (x >= image.width || y >= image.height) continue;
        const int64_t row = header_.top_down ? y : image.height - 1 - y;
        image.pixels[static_cast<size_t>(row * image.width + x)] =
            halves ? static_cast<uint8_t>(i % 2 == 0 ? byte >> 4 : byte & 15) : byte;
      }
    };
    for (size_t at = header_.pixels;;) {
      if (at + 2 > file_.bytes.size()) refuse_short();
      const int64_t count = file_.byte(at), what = file_.byte(at + 1);
      at += 2;
      if (count > 0) {
        put(count, [&](size_t) { return static_cast<uint8_t>(what); });
      } else if (what == 0) {
        x = 0;
        ++y;
      } else if (what == 1) {
        return;
      } else if (what == 2) {
        x += file_.byte(at);
        y += file_.byte(at + 1);
        at += 2;
      } else {
        const auto size = static_cast<size_t>(halves ? (what + 1) / 2 : what);
        if (at + size > file_.bytes.size()) refuse_short();
        put(what, [&](size_t i) { return file_.byte(at + i); });
        at += size + size % 2;
      }
    }
  }

  void color(Image& image) const {
    const std::vector<uint8_t> indices = std::move(image.pixels);
    image.channels = 3;
    image.pixels.resize(indices.size() * 3);
    uint8_t* out = image.pixels.data();
    for (const uint8_t index : indices)
      for (size_t c = 3; c-- > 0;) *out++ = file_.byte(header_.palette + index * header_.color_bytes + c);
  }

  ByteReader file_;
  std::string_view name_;
  BmpHeader header_;
};

}  // namespace

ImageHeader bmp_header(std::span<const std::byte> bytes, std::string_view name) {
  const BmpHeader header = read_header(bytes, name);
  return {.height = header.height, .width = header.width};
}

void decode_bmp(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image) {
  BmpDecoder(bytes, name).decode(pixels, image);
}

}  // namespace hearth::data
