#include "base/error.h"
#include "serve/completion_request.h"

/// Parses bodies of /v1/chat/completions and /v1/completions.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view body(reinterpret_cast<const char*>(data), size);
  for (const bool is_chat : {true, false}) {
    try {
      hearth::serve::parse_completion(body, is_chat, 0);
    } catch (const hearth::UserError&) {
    }
  }
  return 0;
}
