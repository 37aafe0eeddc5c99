#include <cstdlib>
#include <string>
#include <vector>

#include "base/error.h"
#include "temporary_file.h"
#include "text/kd_sidecar.h"

/// Checks that every accepted sidecar has ascending ids below the size of the vocabulary. The input is the
/// sidecar; its shard has the number of tokens in the sidecar's header.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  constexpr int64_t kVocab = 50;
  std::string tokens = "BIN.TOK\n" + std::string(1016 + size, 0);
  tokens[12] = 4;
  if (size >= 20) tokens.replace(16, 4, reinterpret_cast<const char*>(data) + 16, 4);
  const TemporaryFile sidecar(data, size);
  const TemporaryFile shard(reinterpret_cast<const uint8_t*>(tokens.data()), tokens.size());
  try {
    const text::TeacherHeader header = text::read_kd_header(sidecar.path());
    const text::KdSidecar teacher(sidecar.path(), shard.path(), kVocab);
    std::vector<int32_t> ids(header.top_k);
    std::vector<float> logps(header.top_k);
    for (int64_t i = 0; i < teacher.num_entries(); ++i) {
      teacher.read(i, ids.data(), logps.data());
      for (size_t k = 0; k < ids.size(); ++k)
        if (ids[k] < 0 || ids[k] >= kVocab || (k > 0 && ids[k] <= ids[k - 1])) std::abort();
    }
  } catch (const UserError&) {
  }
  return 0;
}
