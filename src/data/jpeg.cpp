#include <cstdio>
// jpeglib.h needs FILE to be declared first.
#include <jpeglib.h>

#include <csetjmp>

#include "base/error.h"
#include "data/image.h"

namespace hearth::data {
namespace {

constexpr JDIMENSION kMaxSide = 16384;

/// libjpeg's error object followed by where to return to.
struct ErrorState {
  jpeg_error_mgr manager;
  std::jmp_buf jump;
  char message[JMSG_LENGTH_MAX] = {};
};

[[noreturn]] void on_error(j_common_ptr info) {
  auto* state = reinterpret_cast<ErrorState*>(info->err);
  info->err->format_message(info, state->message);
  std::longjmp(state->jump, 1);
}

/// Warnings say that data is corrupt or ends early: errors here.
void on_message(j_common_ptr info, int level) {
  if (level < 0) on_error(info);
}

struct Decoder {
  jpeg_decompress_struct info{};
  ~Decoder() { jpeg_destroy_decompress(&info); }
};

bool start(Decoder& decoder, ErrorState& state, std::span<const std::byte> bytes, int channels) {
  if (setjmp(state.jump) != 0) return false;
  jpeg_create_decompress(&decoder.info);
  jpeg_mem_src(&decoder.info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&decoder.info, TRUE);
  if (decoder.info.image_width > kMaxSide || decoder.info.image_height > kMaxSide) {
    std::snprintf(state.message, sizeof(state.message), "a side is above %u pixels", kMaxSide);
    return false;
  }
  decoder.info.out_color_space = channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
  jpeg_start_decompress(&decoder.info);
  return true;
}

bool read_rows(Decoder& decoder, ErrorState& state, uint8_t* pixels, size_t row_bytes) {
  if (setjmp(state.jump) != 0) return false;
  while (decoder.info.output_scanline < decoder.info.output_height) {
    JSAMPROW row = pixels + decoder.info.output_scanline * row_bytes;
    jpeg_read_scanlines(&decoder.info, &row, 1);
  }
  jpeg_finish_decompress(&decoder.info);
  return true;
}

}  // namespace

Image decode_jpeg(std::span<const std::byte> bytes, int channels, std::string_view name) {
  ErrorState state{};
  Decoder decoder;
  decoder.info.err = jpeg_std_error(&state.manager);
  state.manager.error_exit = on_error;
  state.manager.emit_message = on_message;
  if (bytes.empty() || !start(decoder, state, bytes, channels)) {
    user_error("{}: expected a whole JPEG, but {}", name,
               bytes.empty() ? "the file is empty" : state.message);
  }
  Image image{.height = decoder.info.output_height,
              .width = decoder.info.output_width,
              .channels = channels,
              .pixels = {}};
  const auto row_bytes = static_cast<size_t>(image.width * channels);
  image.pixels.resize(row_bytes * static_cast<size_t>(image.height));
  if (!read_rows(decoder, state, image.pixels.data(), row_bytes)) {
    user_error("{}: expected a whole JPEG, but {}", name, state.message);
  }
  return image;
}

}  // namespace hearth::data
