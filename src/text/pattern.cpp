#include "text/pattern.h"

namespace hearth::text {

void replace_all(std::string& text, std::string_view from, std::string_view to) {
  if (from.empty() || text.find(from) == std::string::npos) return;
  std::string out;
  out.reserve(text.size() + text.size() / 4);
  size_t done = 0;
  for (size_t at = 0; (at = text.find(from, done)) != std::string::npos;) {
    out.append(text, done, at - done).append(to);
    done = at + from.size();
  }
  text = std::move(out.append(text, done));
}

}  // namespace hearth::text
