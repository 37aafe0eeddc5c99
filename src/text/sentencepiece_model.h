#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace hearth::text {

/// Contents of a SentencePiece model file that affect encoding (sentencepiece_model.proto).
struct SentencePieceModel {
  enum class Kind { unigram = 1, bpe = 2, word = 3, character = 4 };
  enum class PieceKind { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };
  struct Piece {
    std::string text;
    float score = 0;
    PieceKind kind = PieceKind::normal;
  };
  std::vector<Piece> pieces;
  Kind kind = Kind::unigram;
  bool byte_fallback = false;
  bool space_as_suffix = false;
  bool add_dummy_prefix = true;
  bool remove_extra_spaces = true;
  bool escape_spaces = true;
  /// True if the normalizer has a character map (precompiled_charsmap).
  bool maps_characters = false;
};

/// Parses a SentencePiece model. Throws a UserError naming `file` if the bytes are not a valid model.
SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view file);

}  // namespace hearth::text
