#include <string_view>

#include "base/error.h"
#include "text/jinja.h"

/// Parses a template and renders it under small limits.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using hearth::text::Json;
  static const Json kVariables = Json::parse(R"({"messages": [{"role": "user", "content": " a\n\u00e9"},
    {"role": "assistant", "content": "b", "tool_calls": [{"name": "f", "arguments": {"x": [1, 2.5, null]}}]}],
    "add_generation_prompt": true, "bos_token": "<s>", "x": -3, "m": {"k": "v", "n": {"z": []}}})");
  try {
    const hearth::text::Template parsed({reinterpret_cast<const char*>(data), size}, "fuzz");
    parsed.render(kVariables, {.now = 0, .limit_bytes = 1 << 20, .limit_work = 200'000});
  } catch (const hearth::UserError&) {
  }
  return 0;
}
