#include "text/jinja/unicode.h"

namespace hearth::text::jinja {
namespace {

bool is_continuation(char c) { return (static_cast<uint8_t>(c) & 0xC0) == 0x80; }

size_t length_by_first_byte(uint8_t first) {
  if (first >= 0xF0 && first < 0xF8) return 4;
  if (first >= 0xE0) return first < 0xF0 ? 3 : 1;
  return first >= 0xC0 ? 2 : 1;
}

bool contains(std::string_view characters, char32_t value) {
  for (size_t i = 0; i < characters.size();) {
    const CodePoint point = code_point_at(characters, i);
    if (point.value == value) return true;
    i += point.num_bytes;
  }
  return false;
}

size_t start_of_last(std::string_view text) {
  size_t start = text.size() - 1;
  while (start > 0 && text.size() - start < 4 && is_continuation(text[start])) --start;
  return code_point_at(text, start).num_bytes == text.size() - start ? start : text.size() - 1;
}

}  // namespace

CodePoint code_point_at(std::string_view text, size_t offset) {
  const auto first = static_cast<uint8_t>(text[offset]);
  const size_t length = length_by_first_byte(first);
  if (length == 1 || offset + length > text.size()) return {first, 1};
  char32_t value = first & (0x7F >> length);
  for (size_t i = 1; i < length; ++i) {
    if (!is_continuation(text[offset + i])) return {first, 1};
    value = value << 6 | (static_cast<uint8_t>(text[offset + i]) & 0x3F);
  }
  return {value, length};
}

void append_utf8(std::string& text, char32_t value) {
  if (value < 0x80) {
    text += static_cast<char>(value);
    return;
  }
  const int num_more = value < 0x800 ? 1 : value < 0x10000 ? 2 : 3;
  text += static_cast<char>((0xFF << (7 - num_more) & 0xFF) | value >> (6 * num_more));
  for (int i = num_more - 1; i >= 0; --i) text += static_cast<char>(0x80 | (value >> (6 * i) & 0x3F));
}

int64_t num_code_points(std::string_view text) {
  int64_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) i += code_point_at(text, i).num_bytes;
  return count;
}

size_t byte_of_code_point(std::string_view text, int64_t index) {
  size_t offset = 0;
  for (; index > 0 && offset < text.size(); --index) offset += code_point_at(text, offset).num_bytes;
  return offset;
}

bool is_space(char32_t value) {
  return (value >= 9 && value <= 13) || (value >= 28 && value <= 32) || value == 0x85 || value == 0xA0 ||
         value == 0x1680 || (value >= 0x2000 && value <= 0x200A) || value == 0x2028 || value == 0x2029 ||
         value == 0x202F || value == 0x205F || value == 0x3000;
}

std::string_view strip(std::string_view text, std::string_view characters, Side side) {
  const auto goes = [&](size_t offset) {
    const char32_t value = code_point_at(text, offset).value;
    return characters.empty() ? is_space(value) : contains(characters, value);
  };
  while (side != Side::right && !text.empty() && goes(0))
    text.remove_prefix(code_point_at(text, 0).num_bytes);
  while (side != Side::left && !text.empty()) {
    const size_t last = start_of_last(text);
    if (!goes(last)) break;
    text = text.substr(0, last);
  }
  return text;
}

}  // namespace hearth::text::jinja
