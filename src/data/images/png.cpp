#include <png.h>
#include <zlib.h>

#include <bit>
#include <csetjmp>
#include <cstdio>
#include <cstring>
#include <new>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

// Maximum compression ratio of DEFLATE (zlib's technical notes).
constexpr int64_t kMaxDeflateRatio = 1032;

/// Bytes of the file that libpng has not read yet, and libpng's error message.
struct PngSource {
  std::span<const std::byte> rest;
  char reason[120] = "";
};

[[noreturn]] void on_error(png_structp png, png_const_charp text) {
  auto* source = static_cast<PngSource*>(png_get_error_ptr(png));
  std::snprintf(source->reason, sizeof source->reason, "%s", text);
  png_longjmp(png, 1);
}

void on_warning(png_structp, png_const_charp) {}

void on_read(png_structp png, png_bytep out, size_t count) {
  auto* source = static_cast<PngSource*>(png_get_io_ptr(png));
  if (count > source->rest.size()) png_error(png, "the file ends too early");
  std::memcpy(out, source->rest.data(), count);
  source->rest = source->rest.subspan(count);
}

/// libpng's reading state. Each method returns false on an error: longjmp stays inside it and crosses no
/// object with a destructor.
class PngReader {
 public:
  explicit PngReader(std::span<const std::byte> file) : source_{file} {
    png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, &source_, on_error, on_warning);
    info_ = png_ == nullptr ? nullptr : png_create_info_struct(png_);
    if (info_ == nullptr) return;
    png_set_read_fn(png_, &source_, on_read);
    png_set_user_limits(png_, kMaxImageSide, kMaxImageSide);
    png_set_chunk_malloc_max(png_, 8 << 20);
    png_set_chunk_cache_max(png_, 128);
    png_set_crc_action(png_, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
    // Skips all chunks but PLTE, tRNS and IDAT, which alone affect pixels: libpng would store the others in
    // memory, whatever length they claim.
    png_set_keep_unknown_chunks(png_, PNG_HANDLE_CHUNK_NEVER, nullptr, -1);
  }
  ~PngReader() {
    if (png_ != nullptr) png_destroy_read_struct(&png_, &info_, nullptr);
  }
  PngReader(const PngReader&) = delete;
  PngReader& operator=(const PngReader&) = delete;

  const char* reason() const { return source_.reason[0] != '\0' ? source_.reason : "memory ran out"; }
  int64_t height() const { return png_get_image_height(png_, info_); }
  int64_t width() const { return png_get_image_width(png_, info_); }
  int64_t channels() const { return png_get_channels(png_, info_); }
  /// Bytes per row as stored in the file.
  int64_t row_bytes() const { return static_cast<int64_t>(png_get_rowbytes(png_, info_)); }

  bool read_header() {
    if (info_ == nullptr || setjmp(png_jmpbuf(png_)) != 0) return false;
    png_read_info(png_, info_);
    return true;
  }

  bool is_gray_or_indexed() const {
    const png_byte type = png_get_color_type(png_, info_);
    return type == PNG_COLOR_TYPE_GRAY || type == PNG_COLOR_TYPE_PALETTE;
  }
  int bit_depth() const { return png_get_bit_depth(png_, info_); }

  /// Configures libpng to decode to 8-bit colors, or (as_numbers) to the stored numbers, 16-bit ones in the
  /// byte order of this machine.
  bool start_rows(bool as_numbers) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    if (as_numbers) {
      png_set_packing(png_);
      if (std::endian::native == std::endian::little) png_set_swap(png_);
    } else {
      png_set_expand(png_);
      png_set_strip_16(png_);
    }
    num_passes_ = png_set_interlace_handling(png_);
    png_read_update_info(png_, info_);
    return true;
  }

  bool read_rows(uint8_t* pixels, int64_t height, int64_t row_bytes) {
    if (setjmp(png_jmpbuf(png_)) != 0) return false;
    for (int pass = 0; pass < num_passes_; ++pass)
      for (int64_t y = 0; y < height; ++y) png_read_row(png_, pixels + y * row_bytes, nullptr);
    png_read_end(png_, nullptr);
    return true;
  }

 private:
  PngSource source_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  int num_passes_ = 1;
};

}  // namespace

void decode_png(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image) {
  PngReader reader(bytes);
  const auto demand = [&](bool good) {
    if (!good) user_error("{}: cannot decode the PNG ({}); replace the file", name, reader.reason());
  };
  demand(reader.read_header());
  check_image_size(reader.height(), reader.width(), name);
  check_density(reader.height() * reader.row_bytes(), kMaxDeflateRatio, bytes.size(), name);
  const bool as_numbers = pixels == Pixels::numbers && reader.is_gray_or_indexed();
  const bool is_wide = as_numbers && reader.bit_depth() == 16;
  demand(reader.start_rows(as_numbers));
  image.height = reader.height();
  image.width = reader.width();
  image.channels = reader.channels();
  const int64_t row_values = image.width * image.channels;
  if (is_wide) {
    std::vector<uint16_t> numbers(static_cast<size_t>(image.height * row_values));
    demand(reader.read_rows(reinterpret_cast<uint8_t*>(numbers.data()), image.height, 2 * row_values));
    return narrow(numbers, name, image);
  }
  image.pixels.resize(static_cast<size_t>(image.height * row_values));
  demand(reader.read_rows(image.pixels.data(), image.height, row_values));
}

namespace {

std::string encode(const Image& image, png_uint_32 format, std::span<const std::array<uint8_t, 3>> palette) {
  png_image description;
  std::memset(&description, 0, sizeof(description));
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = format;
  description.colormap_entries = static_cast<png_uint_32>(palette.size());
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(description);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&description, bytes.data(), &size, 0, image.pixels.data(), 0,
                                palette.data()) == 0) {
    throw std::bad_alloc();  // a valid image can fail only for lack of memory
  }
  bytes.resize(size);
  return bytes;
}

void check_whole(const Image& image) {
  HEARTH_CHECK(image.height > 0 && image.width > 0);
  HEARTH_CHECK(std::ssize(image.pixels) == image.height * image.width * image.channels);
}

}  // namespace

std::string encode_png(const Image& image) {
  check_whole(image);
  HEARTH_CHECK(image.channels == 1 || image.channels == 3);
  return encode(image, image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB, {});
}

std::string with_texts(std::string_view png, std::span<const std::pair<std::string, std::string>> texts) {
  // Bytes of the signature and of the IHDR chunk, which must come first; the text chunks are inserted after
  // them.
  constexpr size_t kHead = 8 + 4 + 4 + 13 + 4;
  std::string out(png.substr(0, kHead));
  const auto append_number = [&out](size_t number) {
    for (int shift = 24; shift >= 0; shift -= 8) out.push_back(static_cast<char>(number >> shift & 0xFF));
  };
  for (const auto& [key, text] : texts) {
    std::string chunk = "iTXt" + key;
    // Five zero bytes: end of the key, compression flag and method (not compressed), empty language and
    // translated key.
    chunk.append(5, '\0').append(text);
    append_number(chunk.size() - 4);
    out += chunk;
    append_number(crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size())));
  }
  out += png.substr(kHead);
  return out;
}

std::string encode_png(const Image& indices, std::span<const std::array<uint8_t, 3>> palette) {
  check_whole(indices);
  HEARTH_CHECK(indices.channels == 1 && !palette.empty() && palette.size() <= 256);
  return encode(indices, PNG_FORMAT_RGB_COLORMAP, palette);
}

}  // namespace hearth::data
