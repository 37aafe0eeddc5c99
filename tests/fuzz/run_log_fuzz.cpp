#include "base/error.h"
#include "io/run_log.h"
#include "temporary_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const hearth::TemporaryFile file(data, size);
  try {
    hearth::io::read_curve(file.path(), "loss");
  } catch (const hearth::UserError&) {
  }
  return 0;
}
