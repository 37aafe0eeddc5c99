#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/normalizer.h"

namespace hearth::text {

/// Replaces the tokens <0x00> to <0xFF> by their bytes.
struct JoinBytes {};
/// Concatenates all tokens to one.
struct Fuse {};
/// Removes up to `left` (`right`) repetitions of `content` from the start (end) of each token.
struct StripTokens {
  std::string content;
  int64_t left = 0;
  int64_t right = 0;
};
/// Replaces `replacement` by a space; at the start of the first token, removes it if `strip_first`.
struct MetaspaceToSpace {
  std::string replacement;
  bool strip_first = true;
};
/// Replaces the end-of-word suffix by a space; removes it from the last token.
struct SuffixToSpace {
  std::string suffix;
};

/// Joins WordPiece tokens: removes `prefix` from tokens that continue a word and puts a space before the
/// others, except the first.
struct JoinWordPieces {
  std::string prefix;
  /// True if spaces before punctuation and English contractions are removed.
  bool cleanup = true;
};
/// Puts a space before each token except the first.
struct Separate {};

/// A step of decoding. Steps are applied to a list of tokens; Replace is applied to each token.
using DecoderStep = std::variant<Replace, JoinBytes, Fuse, StripTokens, MetaspaceToSpace, SuffixToSpace,
                                 JoinWordPieces, Separate>;

/// Converts tokens to text: applies the steps in order, then concatenates the tokens.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  /// Returns the text of `tokens`. The result may end within a UTF-8 character.
  std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace hearth::text
