#include "base/error.h"
#include "io/torch_file.h"

/// Reads every byte that a view names, so that a view outside the file is seen.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  try {
    unsigned sum = 0;
    for (const auto& tensor :
         hearth::io::parse_torch_file(std::as_bytes(std::span(data, size)), "fuzz").tensors) {
      for (const std::byte byte : tensor.bytes) sum += static_cast<unsigned>(byte);
    }
    volatile unsigned sink = sum;
    (void)sink;
  } catch (const hearth::UserError&) {
  }
  return 0;
}
