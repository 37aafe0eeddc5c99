#include "text/character_map.h"

#include <utf8proc.h>

#include "base/error.h"
#include "base/utf8.h"
#include "text/pattern.h"

namespace hearth::text {
namespace {

/// Min bytes of a grapheme cluster that is mapped character by character; shorter clusters are mapped as one
/// unit.
constexpr size_t kMinLongCluster = 6;

uint32_t little_endian(std::string_view bytes) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
  return value;
}

// Units of the double array have the bit layout of Darts-clone, the trie library of SentencePiece.
uint32_t offset_of(uint32_t unit) { return unit >> 10 << ((unit & 0x200U) >> 6); }
bool has_leaf(uint32_t unit) { return (unit >> 8 & 1U) != 0; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000FFU; }
uint32_t value_of(uint32_t unit) { return unit & 0x7FFFFFFFU; }

/// Returns the first extended grapheme cluster.
std::string_view first_cluster(std::string_view text) {
  Character last = first_character(text);
  size_t bytes = last.bytes;
  utf8proc_int32_t state = 0;
  while (bytes < text.size()) {
    const Character next = first_character(text.substr(bytes));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.value),
                                         static_cast<utf8proc_int32_t>(next.value), &state))
      break;
    bytes += next.bytes;
    last = next;
  }
  return text.substr(0, bytes);
}

}  // namespace

CharacterMap::CharacterMap(std::string_view bytes, std::string_view where) : where_(where) {
  const size_t size = bytes.size() < 4 ? 0 : little_endian(bytes);
  if (size < 4 || size % 4 != 0 || size > bytes.size() - 4) {
    user_error("{}: the character map of {} bytes is too short for its array of {}; download the file again",
               where, bytes.size(), size);
  }
  units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) units_.push_back(little_endian(bytes.substr(at)));
  strings_ = bytes.substr(4 + size);
  if (valid_prefix(strings_) != strings_.size())
    user_error("{}: the character map's strings are not UTF-8; download the file again", where);
}

uint32_t CharacterMap::unit(size_t unit_index) const {
  if (unit_index < units_.size()) return units_[unit_index];
  user_error("{}: index {} is out of range (array of {} units); download the file again", where_, unit_index,
             units_.size());
}

std::optional<std::string_view> CharacterMap::find(std::string_view text) const {
  size_t unit_index = offset_of(unit(0));
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    if (byte == 0) break;
    unit_index ^= byte;
    const uint32_t found = unit(unit_index);
    if (label_of(found) != byte) break;
    unit_index ^= offset_of(found);
    if (!has_leaf(found)) continue;
    const size_t begin = value_of(unit(unit_index));
    const bool inside = begin <= strings_.size();
    if (!inside || (begin < strings_.size() && (static_cast<uint8_t>(strings_[begin]) & 0xC0) == 0x80))
      user_error("{}: no string starts at byte {} of {}; download the file again", where_, begin,
                 strings_.size());
    return std::string_view(strings_).substr(begin, strings_.find('\0', begin) - begin);
  }
  return std::nullopt;
}

void CharacterMap::append(std::string& out, std::string_view text, size_t max_bytes) const {
  const auto add = [&](std::string_view part) {
    out.append(part);
    check_growth(out.size(), max_bytes);
  };
  while (!text.empty()) {
    std::string_view cluster = first_cluster(text);
    text.remove_prefix(cluster.size());
    if (cluster.size() < kMinLongCluster) {
      if (const auto found = find(cluster)) {
        add(*found);
        continue;
      }
    }
    while (!cluster.empty()) {
      const std::string_view character = cluster.substr(0, first_character(cluster).bytes);
      add(find(character).value_or(character));
      cluster.remove_prefix(character.size());
    }
  }
}

}  // namespace hearth::text
