#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/utf8.h"
#include "text/regex.h"

namespace hearth::text {

/// A search pattern. It is a regular expression if `regex` is set; otherwise a single character for which
/// is_member() is true if that is set; otherwise the text `literal`.
struct Pattern {
  std::shared_ptr<const Regex> regex;
  std::string literal;
  bool (*is_member)(char32_t) = nullptr;

  /// Returns the first match at or after `from`, or nothing. For a regular expression, `text` must be valid
  /// UTF-8. An empty literal never matches.
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

/// Calls body(match) for each match in order. After an empty match, the search continues one character later.
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
    // Reading the clock is slow. So only every eighth batch of matches is timed, and its time counts eight
    // times.
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

/// Returns the max bytes to which normalization and other replacements of a tokenizer file may expand a text
/// of `bytes` bytes.
constexpr size_t max_grown_bytes(size_t bytes) { return 64 * bytes + 1024; }
/// Throws a UserError if `bytes` exceeds `max_bytes`.
void check_growth(size_t bytes, size_t max_bytes);

/// Replaces each occurrence of `from` by `to`; does nothing if `from` is empty. Throws a UserError if the
/// text would exceed `max_bytes` bytes.
void replace_all(std::string& text, std::string_view from, std::string_view to, size_t max_bytes);

}  // namespace hearth::text
