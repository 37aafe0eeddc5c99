#include "text/byte_level.h"

#include <array>
#include <cstdint>

#include "base/utf8.h"

namespace hearth::text {
namespace {

constexpr size_t kAlphabetEnd = 324;

bool spells_itself(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> character;
  std::array<int16_t, kAlphabetEnd> byte;
};

Alphabet make_alphabet() {
  Alphabet made;
  made.byte.fill(-1);
  char32_t next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const char32_t character = spells_itself(byte) ? static_cast<char32_t>(byte) : next++;
    made.character[static_cast<size_t>(byte)] = character;
    made.byte[character] = static_cast<int16_t>(byte);
  }
  return made;
}

const Alphabet& alphabet() {
  static const Alphabet made = make_alphabet();
  return made;
}

}  // namespace

std::string to_byte_level(std::string_view bytes) {
  std::string spelled;
  for (const char byte : bytes) append_utf8(spelled, alphabet().character[static_cast<uint8_t>(byte)]);
  return spelled;
}

std::optional<std::string> from_byte_level(std::string_view spelled) {
  std::string bytes;
  while (!spelled.empty()) {
    const Character next = first_character(spelled);
    if (!next.valid || next.value >= kAlphabetEnd || alphabet().byte[next.value] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(alphabet().byte[next.value]));
    spelled.remove_prefix(next.bytes);
  }
  return bytes;
}

}  // namespace hearth::text
