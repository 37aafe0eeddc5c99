#include <cstdlib>

#include "base/error.h"
#include "text/formats.h"

/// What loads must encode any text, and every id it gives must be one of its own.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth::text;
  const std::string_view json(reinterpret_cast<const char*>(data), size);
  try {
    const auto tokenizer = parse_tokenizer_json(json, "fuzz", {});
    std::vector<int32_t> ids;
    for (const std::string_view text :
         {std::string_view(" Hello, w\xC3\xB6rld 123\n\xFF<s>  don't"), json.substr(0, 256)}) {
      ids.clear();
      tokenizer->encode(text, SpecialTokens::parsed, ids);
      for (const int32_t id : ids) {
        if (id < 0 || id >= tokenizer->vocab_size()) std::abort();
      }
      tokenizer->decode(ids);
    }
  } catch (const hearth::UserError&) {
  }
  return 0;
}
