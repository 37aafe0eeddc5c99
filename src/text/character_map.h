#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// Character replacements of SentencePiece's normalizer (`precompiled_charsmap`): a trie stored as a double
/// array, which maps strings to their replacements.
class CharacterMap {
 public:
  /// Parses the binary form of the map: 4 bytes with the size of the double array in bytes, the array, then
  /// the replacement strings, each terminated by a zero byte. Throws a UserError naming `where` if the map is
  /// malformed.
  CharacterMap(std::string_view bytes, std::string_view where);

  /// Appends the mapped text to `out`. `text` must be valid UTF-8. As in Hugging Face's tokenizers, each
  /// short grapheme cluster is mapped as one unit if the map has it, and other text character by character.
  /// Throws a UserError if `out` would exceed `max_bytes` bytes or if the map is malformed.
  void append(std::string& out, std::string_view text, size_t max_bytes) const;

 private:
  /// Returns the replacement of the shortest key that `text` starts with, or nothing if there is no such key.
  std::optional<std::string_view> find(std::string_view text) const;
  uint32_t unit(size_t unit_index) const;

  std::vector<uint32_t> units_;
  std::string strings_;
  std::string where_;
};

}  // namespace hearth::text
