#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "text/piece_cache.h"
#include "text/string_set.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// Working memory of one thread; any Unigram may use it.
class UnigramScratch {
  friend class Unigram;
  /// The best way to the end of a token: its score, and the token.
  struct Node {
    double score = 0;
    int32_t begin = -1;
    int32_t id = -1;
  };
  struct Part {
    int32_t begin;
    int32_t end;
    int32_t id;
  };
  std::vector<Node> best;
  std::vector<Part> parts;
};

/// The tokens whose scores have the largest sum (Kudo 2018). A character that is no token scores 10 less than
/// the worst token; such characters side by side are one unknown token.
class Unigram {
 public:
  /// `scores` has an entry per id. With `byte_fallback` what is unknown becomes the tokens <0x00> to <0xFF>
  /// of its bytes, where the vocabulary has them all. UserError naming `where` for a token of more than 1024
  /// bytes.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<int32_t> unk, bool byte_fallback,
          std::string_view where);

  /// Appends the ids of one piece. UserError for an unknown character where there is no unknown token.
  void encode(std::string_view piece, PieceCache& cache, UnigramScratch& scratch,
              std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return unk_; }

 private:
  int32_t unknown() const;
  void find_best(std::string_view piece, UnigramScratch& scratch) const;
  /// The tokens of the best way, from back to front, neighboring unknown ones joined.
  void collect_parts(UnigramScratch& scratch) const;
  void append_unknown(std::string_view part, std::vector<int32_t>& ids) const;

  Vocabulary vocabulary_;
  std::vector<double> scores_;
  double unknown_score_;
  std::optional<int32_t> unk_;
  bool byte_fallback_;
  std::string where_;
  std::array<int32_t, 256> byte_ids_;
  StringSet tokens_;
};

}  // namespace hearth::text
