#include "base/error.h"
#include "data/images/image_formats.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hearth::data::Image image;
    hearth::data::decode_png(std::as_bytes(std::span(data, size)), "fuzz", hearth::data::Pixels::colors,
                             image);
    hearth::data::convert(std::move(image), 3);
  } catch (const hearth::UserError&) {
  }
  return 0;
}
