#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "text/regex.h"
#include "text/utf8.h"

namespace hearth::text {

/// What is looked for in a text: a regular expression, or a literal where there is none.
struct Pattern {
  std::shared_ptr<const Regex> regex;
  std::string literal;

  /// The first match at or after `from`; for a regular expression `text` must be valid UTF-8. An empty
  /// literal is nowhere.
  std::optional<Range> find(std::string_view text, size_t from, RegexScratch& scratch) const {
    if (regex) return regex->find(text, from, scratch);
    const size_t at = literal.empty() ? std::string_view::npos : text.find(literal, from);
    if (at == std::string_view::npos) return std::nullopt;
    return Range{at, at + literal.size()};
  }
};

/// Calls body(match) for each match, from front to back; behind an empty one the search goes on a character
/// later.
template <typename Body>
void for_each_match(const Pattern& pattern, std::string_view text, RegexScratch& scratch, Body body) {
  for (size_t from = 0; from <= text.size();) {
    const std::optional<Range> match = pattern.find(text, from, scratch);
    if (!match) break;
    body(*match);
    from = match->end;
    if (match->begin == match->end) from += from < text.size() ? first_character(text.substr(from)).bytes : 1;
  }
}

/// Every `from`, unless it is empty, becomes `to`.
void replace_all(std::string& text, std::string_view from, std::string_view to);

}  // namespace hearth::text
