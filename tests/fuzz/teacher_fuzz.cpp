#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "temporary_file.h"
#include "text/teacher_file.h"

/// Checks that every accepted file has ascending ids below the size of the vocabulary. Corrects the header's
/// digest, so that other headers reach the checks that follow it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  std::vector<uint8_t> bytes(data, data + size);
  if (size >= sizeof(text::TeacherHeader)) {
    text::TeacherHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    header = text::sealed(header);
    std::memcpy(bytes.data(), &header, sizeof(header));
  }
  const TemporaryFile file(bytes.data(), bytes.size());
  try {
    const text::TeacherFile teacher(file.path());
    const text::TeacherHeader& header = teacher.header();
    std::vector<int32_t> ids(header.top_k);
    std::vector<float> logps(header.top_k);
    for (uint64_t i = 0; i < header.num_entries; ++i) {
      teacher.read(static_cast<int64_t>(i), ids.data(), logps.data());
      for (size_t k = 0; k < ids.size(); ++k) {
        if (ids[k] < 0 || ids[k] >= static_cast<int64_t>(header.vocab_size) ||
            (k > 0 && ids[k] <= ids[k - 1]))
          std::abort();
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
