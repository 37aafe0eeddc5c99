#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "text/piece_cache.h"
#include "text/string_set.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// Every piece is one token, or the unknown one.
class WordLevel {
 public:
  WordLevel(Vocabulary vocabulary, std::optional<int32_t> unk, std::string_view where)
      : vocabulary_(std::move(vocabulary)), unk_(unk), where_(where) {}

  /// UserError for an unknown piece where there is no unknown token.
  void encode(std::string_view piece, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return unk_; }

 private:
  Vocabulary vocabulary_;
  std::optional<int32_t> unk_;
  std::string where_;
};

struct WordPieceOptions {
  /// What tokens start with that continue a word.
  std::string prefix = "##";
  /// Longer words are unknown.
  int64_t max_characters = 100;
  std::optional<int32_t> unk;
};

/// Takes the longest token again and again (Schuster and Nakajima 2012); a word in which that fails is one
/// unknown token.
class WordPiece {
 public:
  /// UserError naming `where` for a token of more than 1024 bytes.
  WordPiece(Vocabulary vocabulary, WordPieceOptions options, std::string_view where);

  /// UserError for an unknown piece where there is no unknown token.
  void encode(std::string_view piece, PieceCache& cache, std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return options_.unk; }

 private:
  /// False when some part is unknown.
  bool encode_known(std::string_view piece, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  WordPieceOptions options_;
  std::string where_;
  StringSet starts_;
  /// Without their prefix.
  StringSet continuations_;
};

}  // namespace hearth::text
