#include <cstdio>
// jpeglib.h needs FILE to be declared first.
#include <jpeglib.h>

#include <csetjmp>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

// Max number of scans in a progressive file. A malicious file may repeat scans endlessly; real ones have
// about ten.
constexpr int kMaxScans = 200;
// Limits per byte of the file, against decompression bombs: a block of 8x8 coefficients takes at least one
// bit (a Huffman code), and covers at most 32x32 pixels.
constexpr int64_t kMaxCoefficientsPerByte = 8 * 64;
constexpr int64_t kMaxPixelsPerByte = 8 * 32 * 32;
// Bytes of memory that libjpeg needs for a file of any size: tables, rows, and coefficients of an image
// without detail.
constexpr int64_t kMinMemory = 16 << 20;

/// libjpeg's error manager with the target of longjmp; `base` must come first.
struct JpegErrors {
  jpeg_error_mgr base;
  std::jmp_buf back;
  char reason[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  info->err->format_message(info, errors->reason);
  std::longjmp(errors->back, 1);
}

// Treats warnings about corrupt data (negative level) as errors; by default libjpeg would make up the missing
// pixels.
void on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

void on_progress(j_common_ptr info) {
  auto* errors = reinterpret_cast<JpegErrors*>(info->err);
  if (reinterpret_cast<j_decompress_ptr>(info)->input_scan_number <= kMaxScans) return;
  std::snprintf(errors->reason, sizeof errors->reason, "it has more than %d scans", kMaxScans);
  std::longjmp(errors->back, 1);
}

/// libjpeg's reading state. Each method returns false on an error: longjmp stays inside it and crosses no
/// object with a destructor.
class JpegReader {
 public:
  JpegReader() {
    info_.err = jpeg_std_error(&errors_.base);
    errors_.base.error_exit = on_error;
    errors_.base.emit_message = on_message;
  }
  ~JpegReader() { jpeg_destroy_decompress(&info_); }
  JpegReader(const JpegReader&) = delete;
  JpegReader& operator=(const JpegReader&) = delete;

  const char* reason() const { return errors_.reason; }
  int64_t height() const { return info_.image_height; }
  int64_t width() const { return info_.image_width; }
  int64_t channels() const { return info_.output_components; }
  /// Downscaling factor: image pixels per decoded pixel along each side.
  int64_t divisor() const { return info_.scale_denom; }
  int64_t output_height() const { return info_.output_height; }
  int64_t output_width() const { return info_.output_width; }
  /// True if CMYK inks are stored inverted, as Adobe does.
  bool inverted() const { return info_.saw_Adobe_marker != 0; }

  bool read_header(std::span<const std::byte> file) {
    if (setjmp(errors_.back) != 0) return false;
    jpeg_create_decompress(&info_);
    info_.mem->max_memory_to_use =
        kMinMemory + std::ssize(file) * kMaxCoefficientsPerByte * static_cast<int64_t>(sizeof(JCOEF));
    progress_.progress_monitor = on_progress;
    info_.progress = &progress_;
    jpeg_mem_src(&info_, reinterpret_cast<const unsigned char*>(file.data()), file.size());
    jpeg_read_header(&info_, TRUE);
    return true;
  }

  /// Starts decoding at an eighth, a quarter or half of the size if that is at least `min_size` along both
  /// sides, otherwise at full size.
  bool start(Extent min_size) {
    if (setjmp(errors_.back) != 0) return false;
    const bool gray = info_.jpeg_color_space == JCS_GRAYSCALE;
    const bool inks = info_.jpeg_color_space == JCS_CMYK || info_.jpeg_color_space == JCS_YCCK;
    info_.out_color_space = gray ? JCS_GRAYSCALE : inks ? JCS_CMYK : JCS_RGB;
    info_.dct_method = JDCT_ISLOW;
    info_.scale_num = 1;
    info_.scale_denom = 8;
    const auto scaled = [&](int64_t side) { return (side + info_.scale_denom - 1) / info_.scale_denom; };
    while (info_.scale_denom > 1 && (scaled(height()) < min_size.height || scaled(width()) < min_size.width))
      info_.scale_denom /= 2;
    jpeg_start_decompress(&info_);
    return true;
  }

  bool read_rows(uint8_t* pixels, int64_t row_bytes) {
    if (setjmp(errors_.back) != 0) return false;
    while (info_.output_scanline < info_.output_height) {
      JSAMPROW row = pixels + info_.output_scanline * row_bytes;
      jpeg_read_scanlines(&info_, &row, 1);
    }
    jpeg_finish_decompress(&info_);
    return true;
  }

 private:
  JpegErrors errors_{};
  jpeg_decompress_struct info_{};
  jpeg_progress_mgr progress_{};
};

/// Converts CMYK to RGB in place. `inverted`: true if 255 means no ink, as Adobe stores it.
void inks_to_rgb(bool inverted, Image& image) {
  const size_t num_pixels = image.pixels.size() / 4;
  for (size_t i = 0; i < num_pixels; ++i) {
    const uint8_t* from = &image.pixels[i * 4];
    uint8_t* to = &image.pixels[i * 3];
    const int black = inverted ? from[3] : 255 - from[3];
    for (size_t c = 0; c < 3; ++c) {
      const int light = inverted ? from[c] : 255 - from[c];
      to[c] = static_cast<uint8_t>(light * black / 255);
    }
  }
  image.channels = 3;
  image.pixels.resize(num_pixels * 3);
}

}  // namespace

ImageArea decode_jpeg(std::span<const std::byte> bytes, std::string_view name, Image& image,
                      Extent min_size) {
  if (bytes.empty()) user_error("{}: the JPEG is empty; replace the file", name);
  JpegReader reader;
  const auto demand = [&](bool good) {
    if (!good) user_error("{}: cannot decode the JPEG ({}); replace the file", name, reader.reason());
  };
  demand(reader.read_header(bytes));
  check_image_size(reader.height(), reader.width(), name);
  check_density(reader.height() * reader.width(), kMaxPixelsPerByte, bytes.size(), name);
  demand(reader.start(min_size));
  image.height = reader.output_height();
  image.width = reader.output_width();
  image.channels = reader.channels();
  const int64_t row_bytes = image.width * image.channels;
  image.pixels.resize(static_cast<size_t>(image.height * row_bytes));
  demand(reader.read_rows(image.pixels.data(), row_bytes));
  if (image.channels == 4) inks_to_rgb(reader.inverted(), image);
  const auto divisor = static_cast<double>(reader.divisor());
  return {static_cast<double>(reader.height()) / divisor, static_cast<double>(reader.width()) / divisor};
}

}  // namespace hearth::data
