#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/piece_cache.h"
#include "text/string_set.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// Tokenizer model that maps each piece to one token, or to the unknown token.
class WordLevel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<int32_t> unk, std::string_view where)
      : vocabulary_(std::move(vocabulary)), unk_(unk), where_(where) {}

  /// Appends the id of a piece. Throws a UserError for an unknown piece if there is no unknown token.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return unk_; }

 private:
  Vocabulary vocabulary_;
  std::optional<int32_t> unk_;
  std::string where_;
};

/// Options of WordPiece.
struct WordPieceOptions {
  /// Prefix of tokens that continue a word.
  std::string prefix = "##";
  /// Words with more characters become the unknown token.
  int64_t max_characters = 100;
  std::optional<int32_t> unk;
};

/// WordPiece (Schuster and Nakajima 2012): repeatedly takes the longest token that the rest of the word
/// starts with. A word for which this fails becomes one unknown token.
class WordPiece {
 public:
  /// Throws a UserError naming `where` for a token of more than 1024 bytes.
  WordPiece(Vocabulary vocabulary, WordPieceOptions options, std::string_view where);

  /// Appends the ids of a piece. Throws a UserError for an unknown piece if there is no unknown token.
  void encode(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return options_.unk; }

 private:
  /// Appends the ids of a piece; returns false if a part of the piece is not in the vocabulary.
  bool encode_known(std::string_view piece, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  std::string where_;
  StringSet starts_;
  /// Tokens that continue a word, stored without their prefix "##".
  StringSet continuations_;
};

}  // namespace hearth::text
