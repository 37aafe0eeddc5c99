#include "base/error.h"
#include "text/sentencepiece_model.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    hearth::text::parse_sentencepiece_model({reinterpret_cast<const char*>(data), size}, "fuzz");
  } catch (const hearth::UserError&) {
  }
  return 0;
}
