#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/regex.h"

namespace hearth::text {

/// What is looked for in a text: a regular expression, or a character of a class, or else a literal.
struct Pattern {
  std::shared_ptr<const Regex> regex;
  std::string literal;
  bool (*is_member)(char32_t) = nullptr;

  /// The first match at or after `from`; for a regular expression `text` must be valid UTF-8. An empty
  /// literal is nowhere.
  std::optional<Range> find(std::string_view text, size_t from, RegexScratch& scratch,
                            MatchTime& time) const {
    if (regex) return regex->find(text, from, scratch, time);
    if (is_member != nullptr) return find_member(text, from);
    const size_t at = literal.empty() ? std::string_view::npos : text.find(literal, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Range{at, at + literal.size()};
  }

 private:
  std::optional<Range> find_member(std::string_view text, size_t from) const {
    while (from < text.size()) {
      const Character next = first_character(text.substr(from));
      if (next.valid && is_member(next.value)) return Range{from, from + next.bytes};
      from += next.bytes;
    }
    return std::nullopt;
  }
};

/// Calls body(match) for each match, from front to back; after an empty one the search continues a character
/// later.
template <typename Body>
void for_each_match(const Pattern& pattern, std::string_view text, RegexScratch& scratch, Body body) {
  constexpr size_t kBatch = 64, kTimedBatch = 8;
  MatchTime time(text.size());
  size_t from = 0;
  const auto next = [&]() -> std::optional<Range> {
    if (from > text.size()) return std::nullopt;
    const std::optional<Range> match = pattern.find(text, from, scratch, time);
    if (!match) return std::nullopt;
    from = match->end;
    if (match->begin == match->end) from += from < text.size() ? first_character(text.substr(from)).bytes : 1;
    return match;
  };
  for (;;) {
    for (size_t i = 0; i < (kTimedBatch - 1) * kBatch; ++i) {
      const std::optional<Range> match = next();
      time.stop(1);
      if (!match) return;
      body(*match);
    }
    // The clock is read around every eighth batch.
    std::array<Range, kBatch> found;
    size_t count = 0;
    if (pattern.regex) time.start();
    while (count < kBatch) {
      const std::optional<Range> match = next();
      if (!match) break;
      found[count++] = *match;
    }
    time.stop(kTimedBatch);
    if (pattern.regex) pattern.regex->check(time, text.size());
    time.stop(1);
    for (size_t i = 0; i < count; ++i) body(found[i]);
    if (count < kBatch) return;
  }
}

/// How long a text of `bytes` may become by what a file asks to put in.
constexpr size_t max_grown_bytes(size_t bytes) { return 64 * bytes + 1024; }
/// UserError when a text is longer than `most` bytes.
void check_growth(size_t bytes, size_t most);

/// Every `from`, unless it is empty, becomes `to`; the text keeps to `most` bytes, or UserError.
void replace_all(std::string& text, std::string_view from, std::string_view to, size_t most);

}  // namespace hearth::text
