#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/character_map.h"
#include "text/pattern.h"

namespace hearth::text {

enum class UnicodeForm { nfc, nfd, nfkc, nfkd };

/// Steps of normalization, applied to a text before it is split. Bytes that are not UTF-8 stay unchanged.
/// Compose converts to a Unicode normal form.
struct Compose {
  UnicodeForm form;
};
/// Converts to lower case by the simple case mapping of Unicode.
struct Lowercase {};
/// Removes the characters for which `one` returns true.
struct RemoveCharacters {
  bool (*one)(char32_t);
};
/// Replaces the characters for which `one` returns true by a space.
struct CharactersToSpace {
  bool (*one)(char32_t);
};
/// Puts a space on both sides of the characters for which `one` returns true.
struct SpaceAround {
  bool (*one)(char32_t);
};
/// Applies the character map that is compiled into a SentencePiece model.
struct MapCharacters {
  std::shared_ptr<const CharacterMap> map;
};
/// Replaces each match by `content`.
struct Replace {
  Pattern pattern;
  std::string content;

  /// Throws a UserError if the text would exceed `most` bytes.
  void apply(std::string& text, RegexScratch& scratch, size_t max_bytes) const;
};
/// Puts `content` before each nonempty text.
struct Prepend {
  std::string content;
};
/// Removes white space from the start (left) and the end (right).
struct Strip {
  bool left;
  bool right;
};

using NormalizerStep = std::variant<Compose, Lowercase, RemoveCharacters, CharactersToSpace, SpaceAround,
                                    MapCharacters, Replace, Prepend, Strip>;

/// Applies steps in order; without steps the text is unchanged. Throws a UserError if a text grows beyond
/// max_grown_bytes.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  void apply(std::string& text, RegexScratch& scratch) const;
  /// Like apply(text, scratch). `start`: number of bytes at the start of the text that stem from the first
  /// character of the user's text; updated for the normalized text.
  void apply(std::string& text, size_t& start, RegexScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace hearth::text
