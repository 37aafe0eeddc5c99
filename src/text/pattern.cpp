#include "text/pattern.h"

#include "base/error.h"

namespace hearth::text {

void check_growth(size_t bytes, size_t most) {
  if (bytes > most) {
    user_error(
        "the tokenizer expands a text to {} bytes, more than the limit of {} (64 times its length plus "
        "1024); check the normalizer, pre_tokenizer and decoder in tokenizer.json",
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
