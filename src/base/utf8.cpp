#include "base/utf8.h"

#include <array>
#include <cstdint>
#include <cstring>

namespace hearth {
namespace {

constexpr char32_t kLast = 0x10FFFF;

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

/// Returns the length in bytes of a character that starts with this lead byte; 0 if no character starts with
/// it.
size_t announced_bytes(uint8_t lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

}  // namespace

Character first_character(std::string_view text) {
  const uint8_t lead = byte_at(text, 0);
  const size_t bytes = announced_bytes(lead);
  if (bytes == 1) return {lead, 1, true};
  if (bytes == 0 || bytes > text.size()) return {lead, 1, false};
  char32_t value = lead & (0x7FU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte_at(text, i) & 0xC0) != 0x80) return {lead, 1, false};
    value = value << 6 | (byte_at(text, i) & 0x3FU);
  }
  constexpr std::array<char32_t, 5> kSmallest = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value < 0xE000;
  if (value < kSmallest[bytes] || surrogate || value > kLast) return {lead, 1, false};
  return {value, bytes, true};
}

Character last_character(std::string_view text) {
  for (size_t bytes = 1; bytes <= std::min<size_t>(4, text.size()); ++bytes) {
    const Character found = first_character(text.substr(text.size() - bytes));
    if (found.valid && found.bytes == bytes) return found;
  }
  return {byte_at(text, text.size() - 1), 1, false};
}

size_t valid_prefix(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    uint64_t eight = 0;
    if (text.size() - at >= 8) std::memcpy(&eight, text.data() + at, 8);
    if (text.size() - at >= 8 && (eight & 0x8080808080808080U) == 0) {
      at += 8;
      continue;
    }
    const Character next = first_character(text.substr(at));
    if (!next.valid) return at;
    at += next.bytes;
  }
  return at;
}

size_t complete_prefix(std::string_view text) {
  size_t start = text.size();
  while (start > 0 && text.size() - start < 4) {
    const auto byte = static_cast<unsigned char>(text[--start]);
    if (byte < 0x80) return text.size();
    if (byte < 0xC0) continue;
    const size_t length = byte >= 0xF0 ? 4 : byte >= 0xE0 ? 3 : 2;
    return text.size() - start < length ? start : text.size();
  }
  return text.size();
}

void append_utf8(std::string& out, char32_t value) {
  const auto tail = [&](int shift) { out.push_back(static_cast<char>(0x80 | (value >> shift & 0x3F))); };
  if (value < 0x80) {
    out.push_back(static_cast<char>(value));
  } else if (value < 0x800) {
    out.push_back(static_cast<char>(0xC0 | value >> 6));
    tail(0);
  } else if (value < 0x10000) {
    out.push_back(static_cast<char>(0xE0 | value >> 12));
    tail(6), tail(0);
  } else {
    out.push_back(static_cast<char>(0xF0 | value >> 18));
    tail(12), tail(6), tail(0);
  }
}

bool is_space(char32_t value) {
  if (value < 0x80) return value == ' ' || (value >= '\t' && value <= '\r');
  return value == 0x85 || value == 0xA0 || value == 0x1680 || (value >= 0x2000 && value <= 0x200A) ||
         value == 0x2028 || value == 0x2029 || value == 0x202F || value == 0x205F || value == 0x3000;
}

}  // namespace hearth
