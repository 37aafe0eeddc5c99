#pragma once

#include <cstdint>
#include <string_view>

#include "base/utf8.h"

namespace hearth::text::jinja {

int64_t num_characters(std::string_view text);
/// Where character number `index` starts; the size of the text beyond the last.
size_t byte_of_character(std::string_view text, int64_t index);

/// What str.isspace of Python 3 holds for: White_Space and the four separators of ASCII.
bool is_python_space(char32_t value);

enum class Side { left, right, both };
/// str.strip, lstrip or rstrip of Python; an empty `characters` strips white space.
std::string_view strip(std::string_view text, std::string_view characters, Side side);

}  // namespace hearth::text::jinja
