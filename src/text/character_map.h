#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// What SentencePiece writes in place of characters: `precompiled_charsmap`, a double array over strings and
/// what they become.
class CharacterMap {
 public:
  /// `bytes`: the size of the array in bytes, the array, and strings with a zero after each. UserError
  /// naming `where` when it is none.
  CharacterMap(std::string_view bytes, std::string_view where);

  /// Appends a text, which must be valid UTF-8, as Hugging Face's tokenizers map it: character after
  /// character, but a short cluster of them as one. `out` keeps to `most` bytes, or UserError; the same for a
  /// broken map.
  void append(std::string& out, std::string_view text, size_t most) const;

 private:
  /// What stands for the shortest key that `text` starts with; nothing when there is no such key.
  std::optional<std::string_view> find(std::string_view text) const;
  uint32_t unit(size_t place) const;

  std::vector<uint32_t> units_;
  std::string strings_;
  std::string where_;
};

}  // namespace hearth::text
