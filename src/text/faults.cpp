#include "text/faults.h"

namespace hearth::text {

void Faults::add(std::string_view file, int64_t line, const std::string& kind, std::string_view sentence) {
  ++total_;
  ++counts_[kind];
  if (sentences_.size() < kMaxSentences) sentences_.push_back(fmt::format("{}:{}: {}", file, line, sentence));
}

}  // namespace hearth::text
