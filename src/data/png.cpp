#include <png.h>
#include <zlib.h>

#include <cstring>

#include "base/error.h"
#include "data/image.h"

namespace hearth::data {
namespace {

constexpr uint32_t kMaxSide = 16384;

/// What libpng's callbacks share. Errors leave by longjmp, so nothing with a destructor lives across its
/// calls.
struct ReadState {
  std::span<const std::byte> bytes;
  size_t position = 0;
  char message[160] = {};
};

void read_bytes(png_structp png, png_bytep out, size_t count) {
  auto* state = static_cast<ReadState*>(png_get_io_ptr(png));
  if (count > state->bytes.size() - state->position) png_error(png, "the file is truncated");
  std::memcpy(out, state->bytes.data() + state->position, count);
  state->position += count;
}

[[noreturn]] void on_error(png_structp png, png_const_charp message) {
  auto* state = static_cast<ReadState*>(png_get_error_ptr(png));
  std::strncpy(state->message, message, sizeof(state->message) - 1);
  png_longjmp(png, 1);
}

/// Warnings about the pixels or the structure are errors here: a damaged picture must not become training
/// data.
void on_warning(png_structp png, png_const_charp message) {
  for (const char* harmless :
       {"iCCP", "cHRM", "gAMA", "sRGB", "sBIT", "tIME", "hIST", "tEXt", "zTXt", "iTXt", "pHYs", "oFFs",
        "eXIf", "sPLT", "pCAL", "sCAL", "bKGD", "known incorrect", "Interlace handling"}) {
    if (std::strstr(message, harmless) != nullptr) return;
  }
  on_error(png, message);
}

struct Reader {
  png_structp png = nullptr;
  png_infop info = nullptr;
  ~Reader() { png_destroy_read_struct(&png, &info, nullptr); }
};

struct Header {
  uint32_t width = 0;
  uint32_t height = 0;
  size_t row_bytes = 0;
};

bool read_header(Reader& reader, ReadState& state, int channels, Header& header) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_set_read_fn(reader.png, &state, read_bytes);
  png_set_user_limits(reader.png, kMaxSide, kMaxSide);
  png_set_crc_action(reader.png, PNG_CRC_ERROR_QUIT, PNG_CRC_ERROR_QUIT);
  png_set_benign_errors(reader.png, 0);
  png_read_info(reader.png, reader.info);
  header.width = png_get_image_width(reader.png, reader.info);
  header.height = png_get_image_height(reader.png, reader.info);
  png_set_expand(reader.png);
  png_set_scale_16(reader.png);
  png_set_strip_alpha(reader.png);
  const int color = png_get_color_type(reader.png, reader.info);
  const bool gray = (color & PNG_COLOR_MASK_COLOR) == 0;
  if (channels == 3 && gray) png_set_gray_to_rgb(reader.png);
  if (channels == 1 && !gray) png_set_rgb_to_gray_fixed(reader.png, 1, -1, -1);
  png_set_interlace_handling(reader.png);
  png_read_update_info(reader.png, reader.info);
  header.row_bytes = png_get_rowbytes(reader.png, reader.info);
  return true;
}

bool read_pixels(Reader& reader, png_bytep* rows) {
  if (setjmp(png_jmpbuf(reader.png)) != 0) return false;
  png_read_image(reader.png, rows);
  png_read_end(reader.png, nullptr);
  return true;
}

[[noreturn]] void refuse(std::string_view name, const ReadState& state) {
  user_error("{}: expected a whole PNG, but {}", name, state.message);
}

}  // namespace

Image decode_png(std::span<const std::byte> bytes, int channels, std::string_view name) {
  ReadState state{.bytes = bytes};
  Reader reader;
  reader.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &state, on_error, on_warning);
  reader.info = png_create_info_struct(reader.png);
  Header header;
  if (!read_header(reader, state, channels, header)) refuse(name, state);
  Image image{.height = header.height, .width = header.width, .channels = channels, .pixels = {}};
  const size_t row_bytes = static_cast<size_t>(header.width) * static_cast<size_t>(channels);
  if (header.row_bytes != row_bytes) user_error("{}: expected {} channels after conversion", name, channels);
  image.pixels.resize(row_bytes * header.height);
  std::vector<png_bytep> rows(header.height);
  for (size_t y = 0; y < rows.size(); ++y) rows[y] = image.pixels.data() + y * row_bytes;
  if (!read_pixels(reader, rows.data())) refuse(name, state);
  return image;
}

std::string encode_png(const Image& image) {
  png_image description;
  std::memset(&description, 0, sizeof(description));
  description.version = PNG_IMAGE_VERSION;
  description.width = static_cast<png_uint_32>(image.width);
  description.height = static_cast<png_uint_32>(image.height);
  description.format = image.channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB;
  png_alloc_size_t size = PNG_IMAGE_PNG_SIZE_MAX(description);
  std::string bytes(size, '\0');
  if (png_image_write_to_memory(&description, bytes.data(), &size, 0, image.pixels.data(), 0, nullptr) == 0) {
    internal_error("cannot encode a PNG: {}", description.message);
  }
  bytes.resize(size);
  return bytes;
}

}  // namespace hearth::data
