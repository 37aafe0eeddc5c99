#include <cstdlib>

#include "system/gpu_metrics.h"

/// Any bytes are a reading or nothing; what is read lies within them.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto reading = hearth::system::parse_gpu_metrics(bytes);
  if (reading && reading->pcie_errors < -1) std::abort();
  return 0;
}
