#include <cstdio>
#include <cstdlib>
// jpeglib.h needs FILE to be declared first.
#include <jpeglib.h>

#include <memory>

#include "base/error.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

// While writing to memory, libjpeg fails only if memory runs out; its default handler would end the process
// without a message.
[[noreturn]] void on_jpeg_error(j_common_ptr) { std::abort(); }

}  // namespace

std::string encode_jpeg(const Image& image, int quality) {
  HEARTH_CHECK(image.channels == 3 && image.width > 0 && image.height > 0);
  jpeg_error_mgr errors;
  jpeg_compress_struct info;
  info.err = jpeg_std_error(&errors);
  errors.error_exit = on_jpeg_error;
  jpeg_create_compress(&info);
  unsigned char* bytes = nullptr;
  unsigned long size = 0;  // NOLINT: libjpeg's type
  jpeg_mem_dest(&info, &bytes, &size);
  info.image_width = static_cast<JDIMENSION>(image.width);
  info.image_height = static_cast<JDIMENSION>(image.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, quality, TRUE);
  info.optimize_coding = TRUE;
  // Disables chroma subsampling, so that the frames and letters of drawn boxes stay sharp.
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = 1;
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<uint8_t*>(image.pixels.data()) + info.next_scanline * image.width * 3;
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const std::unique_ptr<unsigned char, void (*)(void*)> owner(bytes, std::free);
  return {reinterpret_cast<const char*>(bytes), size};
}

}  // namespace hearth::data
