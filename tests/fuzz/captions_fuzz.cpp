#include <cstdlib>

#include "base/error.h"
#include "base/utf8.h"
#include "data/captions/captions.h"

/// Captions that are accepted are UTF-8, and of lines that there are.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    for (const data::CaptionLine& line : data::parse_caption_lines(text, "fuzz")) {
      if (line.line < 1 || valid_prefix(line.text) != line.text.size()) std::abort();
    }
  } catch (const UserError&) {
  }
  try {
    for (const data::CaptionLine& line : data::parse_caption_csv(text, "fuzz")) {
      if (line.line < 2 || valid_prefix(line.text) != line.text.size()) std::abort();
    }
  } catch (const UserError&) {
  }
  try {
    const std::string caption = data::parse_caption(text, "fuzz");
    if (caption.find('\n') != caption.npos || valid_prefix(caption) != caption.size()) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
