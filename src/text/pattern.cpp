#include "text/pattern.h"

#include "base/error.h"

namespace hearth::text {

void check_growth(size_t bytes, size_t max_bytes) {
  if (bytes > max_bytes) {
    user_error(
        "the tokenizer expands a text to {} bytes, more than the limit of {} (64 times its length plus "
        "1024); check the normalizer, pre_tokenizer and decoder in tokenizer.json",
        bytes, max_bytes);
  }
}

void replace_all(std::string& text, std::string_view from, std::string_view to, size_t max_bytes) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos;) {
    out.append(text, done, at - done).append(to);
    check_growth(out.size(), max_bytes);
    done = at + from.size();
  }
  text = std::move(out.append(text, done));
}

}  // namespace hearth::text
