#include "text/string_set.h"

#include <algorithm>

namespace hearth::text {

void StringSet::add(std::string_view text, size_t index) {
  if (!text.empty()) texts_.emplace_back(text, index);
}

void StringSet::finish() {
  std::sort(texts_.begin(), texts_.end());
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  texts_.erase(std::unique(texts_.begin(), texts_.end(), same), texts_.end());
  for (const auto& [text, index] : texts_) ++begin_[static_cast<uint8_t>(text[0]) + 1U];
  for (size_t byte = 0; byte < 256; ++byte) begin_[byte + 1] += begin_[byte];
}

void StringSet::for_each_prefix(std::string_view text, FunctionRef<void(size_t, size_t)> found) const {
  const auto first = static_cast<uint8_t>(text[0]);
  auto low = texts_.begin() + static_cast<std::ptrdiff_t>(begin_[first]);
  auto high = texts_.begin() + static_cast<std::ptrdiff_t>(begin_[first + 1U]);
  // Invariant: the strings in [low, high) are those that start with the first `bytes` bytes of the text; the
  // shortest is first.
  for (size_t bytes = 1; low != high; ++bytes) {
    if (high - low == 1) {
      if (text.starts_with(low->first)) found(low->second, low->first.size());
      return;
    }
    if (low->first.size() == bytes) {
      found(low->second, bytes);
      ++low;
    }
    if (bytes == text.size()) break;
    const auto next = static_cast<uint8_t>(text[bytes]);
    const auto byte_of = [&](const auto& entry) { return static_cast<uint8_t>(entry.first[bytes]); };
    low = std::partition_point(low, high, [&](const auto& entry) { return byte_of(entry) < next; });
    high = std::partition_point(low, high, [&](const auto& entry) { return byte_of(entry) == next; });
  }
}

std::optional<StringSet::Found> StringSet::longest_prefix(std::string_view text,
                                                          FunctionRef<bool(size_t)> allowed) const {
  std::optional<Found> longest;
  for_each_prefix(text, [&](size_t index, size_t bytes) {
    if (allowed(index)) longest = Found{index, bytes};
  });
  return longest;
}

}  // namespace hearth::text
