#include "base/error.h"
#include "data/dataset.h"
#include "data/idx.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    hearth::data::parse_idx(bytes, "fuzz");
  } catch (const hearth::UserError&) {
  }
  try {
    hearth::data::parse_idx(hearth::data::inflate_idx(bytes, "fuzz"), "fuzz");
  } catch (const hearth::UserError&) {
  }
  return 0;
}
