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

/// What happens to a text before it is split. Bytes that are not UTF-8 stay as they are.
struct Compose {
  UnicodeForm form;
};
struct Lowercase {};
/// Leaves out the characters that one is true of.
struct RemoveCharacters {
  bool (*one)(char32_t);
};
/// Those become a space.
struct CharactersToSpace {
  bool (*one)(char32_t);
};
/// Puts a space on either side of them.
struct SpaceAround {
  bool (*one)(char32_t);
};
/// What SentencePiece compiled into its model.
struct MapCharacters {
  std::shared_ptr<const CharacterMap> map;
};
/// Every match becomes `content`.
struct Replace {
  Pattern pattern;
  std::string content;

  /// The text keeps to `most` bytes, or UserError.
  void apply(std::string& text, RegexScratch& scratch, size_t most) const;
};
/// Ahead of every text that is not empty.
struct Prepend {
  std::string content;
};
struct Strip {
  bool left;
  bool right;
};

using NormalizerStep = std::variant<Compose, Lowercase, RemoveCharacters, CharactersToSpace, SpaceAround,
                                    MapCharacters, Replace, Prepend, Strip>;

/// The steps in order; none leave the text alone. UserError when a text grows beyond max_grown_bytes.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  bool empty() const { return steps_.empty(); }
  void apply(std::string& text, RegexScratch& scratch) const;
  /// The same. `start`: how many bytes at the start of the text come of its first character, before and
  /// after.
  void apply(std::string& text, size_t& start, RegexScratch& scratch) const;

 private:
  std::vector<NormalizerStep> steps_;
};

}  // namespace hearth::text
