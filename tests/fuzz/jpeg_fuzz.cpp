#include "base/error.h"
#include "data/images/image.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hearth::data::Image image;
    hearth::data::decode_jpeg(std::as_bytes(std::span(data, size)), "fuzz", image);
    hearth::data::convert(std::move(image), 3);
  } catch (const hearth::UserError&) {
  }
  return 0;
}
