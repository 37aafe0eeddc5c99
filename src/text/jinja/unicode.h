#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace hearth::text::jinja {

struct CodePoint {
  char32_t value = 0;
  size_t num_bytes = 0;
};

/// The code point that starts at a byte; a byte that starts none is one by itself.
CodePoint code_point_at(std::string_view text, size_t offset);
void append_utf8(std::string& text, char32_t value);

int64_t num_code_points(std::string_view text);
/// Where code point number `index` starts; the size of the text beyond the last.
size_t byte_of_code_point(std::string_view text, int64_t index);

/// What str.isspace of Python 3 holds for.
bool is_space(char32_t value);

enum class Side { left, right, both };
/// str.strip, lstrip or rstrip of Python; an empty `characters` strips white space.
std::string_view strip(std::string_view text, std::string_view characters, Side side);

}  // namespace hearth::text::jinja
