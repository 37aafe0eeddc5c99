#pragma once

#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace hearth::text::jinja {

/// Returns the number of code points of a UTF-8 text.
int64_t num_characters(std::string_view text);
/// Returns the byte offset of character number `index`; text.size() if there are fewer characters.
size_t byte_of_character(std::string_view text, int64_t index);

/// True if Python's str.isspace is true: White_Space and the four ASCII separators U+001C to U+001F.
bool is_python_space(char32_t value);

enum class Side { left, right, both };
/// Implements Python's str.strip, lstrip and rstrip. Empty `characters` strips white space.
std::string_view strip(std::string_view text, std::string_view characters, Side side);

}  // namespace hearth::text::jinja
