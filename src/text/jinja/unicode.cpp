#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

bool contains(std::string_view characters, char32_t value) {
  while (!characters.empty()) {
    const Character next = first_character(characters);
    if (next.value == value) return true;
    characters.remove_prefix(next.bytes);
  }
  return false;
}

}  // namespace

int64_t num_characters(std::string_view text) {
  int64_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(first_character(text).bytes);
  return count;
}

size_t byte_of_character(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += first_character(text.substr(offset)).bytes;
  return offset;
}

bool is_python_space(char32_t value) { return is_space(value) || (value >= 0x1C && value <= 0x1F); }

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  const auto goes = [&](Character c) {
    return characters.empty() ? is_python_space(c.value) : contains(characters, c.value);
  };
  while (side != Side::right && !text.empty() && goes(first_character(text)))
    text.remove_prefix(first_character(text).bytes);
  while (side != Side::left && !text.empty() && goes(last_character(text)))
    text.remove_suffix(last_character(text).bytes);
  return text;
}

}  // namespace hearth::text::jinja
