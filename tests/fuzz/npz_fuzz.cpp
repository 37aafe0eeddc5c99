#include <cstdlib>

#include "base/error.h"
#include "io/npz.h"
#include "temporary_file.h"

/// Arrays that are read are as long as their heads say, and below the limit.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  constexpr int64_t kLimit = 1 << 20;
  const TemporaryFile file(data, size);
  try {
    const io::NpzFile npz(file.path());
    for (const std::string& name : npz.names()) {
      try {
        const int64_t num_bytes = std::ssize(npz.read(name, kLimit));
        if (num_bytes != npz.head(name).num_bytes() || num_bytes > kLimit) std::abort();
      } catch (const UserError&) {
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
