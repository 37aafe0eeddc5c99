#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>

namespace hearth {

/// A character of a text: its code point and length, or a single byte that is not valid UTF-8.
struct Character {
  char32_t value = 0;
  size_t bytes = 1;
  bool valid = false;
};

/// Returns the first character of `text`, which must not be empty. Overlong forms and surrogates are invalid.
Character first_character(std::string_view text);
/// Returns the last character of `text`, which must not be empty.
Character last_character(std::string_view text);
/// Returns the number of bytes at the start of `text` that are valid UTF-8.
size_t valid_prefix(std::string_view text);
/// Returns the number of bytes of `text` before an incomplete character at its end; all of them if there is
/// none.
size_t complete_prefix(std::string_view text);
/// Appends a code point of at most 0x10FFFF.
void append_utf8(std::string& out, char32_t value);

/// True for code points with Unicode's White_Space property.
bool is_space(char32_t value);
inline bool is_space(Character c) { return c.valid && is_space(c.value); }

/// Calls valid(run) for each run of valid UTF-8 and other(byte) for each invalid byte, in order.
template <typename Valid, typename Other>
void for_each_run(std::string_view text, Valid&& valid, Other&& other) {
  while (!text.empty()) {
    const size_t length = valid_prefix(text);
    if (length > 0) valid(text.substr(0, length));
    if (length < text.size()) other(text.substr(length, 1));
    text.remove_prefix(std::min(text.size(), length + 1));
  }
}

}  // namespace hearth
