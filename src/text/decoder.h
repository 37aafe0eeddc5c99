#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "text/normalizer.h"

namespace hearth::text {

/// Tokens <0x00> to <0xFF> become their bytes.
struct JoinBytes {};
/// All tokens become one.
struct Fuse {};
/// Takes up to `left` and `right` times `content` from the ends of every token.
struct StripTokens {
  std::string content;
  int64_t left = 0;
  int64_t right = 0;
};
/// `replacement` becomes a space; those of the first token go, if `strip_first`.
struct MetaspaceToSpace {
  std::string replacement;
  bool strip_first = true;
};
/// The end-of-word suffix becomes a space, but for the last token, where it goes.
struct SuffixToSpace {
  std::string suffix;
};

/// The tokens of WordPiece: those without `prefix`, which goes, have a space ahead, but for the first.
struct JoinWordPieces {
  std::string prefix;
  /// Takes spaces from before punctuation and English contractions.
  bool cleanup = true;
};
/// A space ahead of every token but the first.
struct Separate {};

/// Replace: in every token.
using DecoderStep = std::variant<Replace, JoinBytes, Fuse, StripTokens, MetaspaceToSpace, SuffixToSpace,
                                 JoinWordPieces, Separate>;

/// Tokens to text: the steps in order, then all is joined.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  std::string decode(std::vector<std::string> tokens) const;

 private:
  std::vector<DecoderStep> steps_;
};

}  // namespace hearth::text
