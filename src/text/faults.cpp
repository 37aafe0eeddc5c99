#include "text/faults.h"

#include "base/utf8.h"

namespace hearth::text {

void Faults::add(std::string_view file, int64_t line, const std::string& kind, std::string_view sentence) {
  ++total_;
  ++counts_[kind];
  if (sentences_.size() >= kMaxSentences) return;
  const bool fits = sentence.size() <= kMaxSentenceBytes;
  const size_t shown = fits ? sentence.size() : complete_prefix(sentence.substr(0, kMaxSentenceBytes));
  sentences_.push_back(fmt::format("{}:{}: {}{}", file, line, sentence.substr(0, shown), fits ? "" : "..."));
}

}  // namespace hearth::text
