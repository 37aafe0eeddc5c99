#include "text/pattern.h"

#include "base/error.h"

namespace hearth::text {

void check_growth(size_t bytes, size_t most) {
  if (bytes > most) {
    user_error(
        "expected normalizer, pre_tokenizer and decoder of tokenizer.json to let a text grow to 64 times its "
        "bytes "
        "and 1024 at most, got {} where {} are allowed",
        bytes, most);
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to, size_t most) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos;) {
    out.append(text, done, at - done).append(to);
    check_growth(out.size(), most);
    done = at + from.size();
  }
  text = std::move(out.append(text, done));
}

}  // namespace hearth::text
