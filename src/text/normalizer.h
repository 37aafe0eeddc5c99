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

/// Normalization step: converts to a Unicode normal form. Like the steps below, it is applied to a text
/// before the text is split, and leaves bytes that are not UTF-8 unchanged.
struct Compose {
  UnicodeForm form;
};
/// Converts to lower case by the simple case mapping of Unicode.
struct Lowercase {};
/// Removes the characters for which one(character) is true.
struct RemoveCharacters {
  bool (*one)(char32_t);
};
/// Replaces the characters for which one(character) is true by a space.
struct CharactersToSpace {
  bool (*one)(char32_t);
};
/// Puts a space before and after each character for which one(character) is true.
struct SpaceAround {
  bool (*one)(char32_t);
};
/// Applies the character map that is compiled into a SentencePiece model.
struct MapCharacters {
  std::shared_ptr<const CharacterMap> map;
};
/// Replaces each match of `pattern` by `content`.
struct Replace {
  Pattern pattern;
  std::string content;

  /// Replaces the matches in `text`. Throws a UserError if the text would exceed `max_bytes` bytes.
  void apply(std::string& text, RegexScratch& scratch, size_t max_bytes) const;
};
/// Puts `content` before the text, unless the text is empty.
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

/// Applies normalization steps in order; without steps, the text is unchanged. Throws a UserError if a text
/// would grow beyond max_grown_bytes().
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  void apply(std::string& text, RegexScratch& scratch) const;
  /// Normalizes `text` and keeps track of its start. `start`: number of bytes at the start of the text that
  /// come from the first character of the user's text; updated for the normalized text.
  void apply(std::string& text, size_t& start, RegexScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace hearth::text
