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

/// Scratch memory of one thread. Any Unigram may use it.
class UnigramScratch {
  friend class Unigram;
  /// Best segmentation that ends at a byte offset: its total score, and the begin and id of its last token.
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

/// Unigram language model tokenization (Kudo 2018): chooses the tokens with the largest sum of scores by the
/// Viterbi algorithm. A character without a token scores 10 less than the worst token; adjacent unknown
/// characters form one unknown token.
class Unigram {
 public:
  /// `scores` has one entry per id. With `byte_fallback`, unknown characters are encoded as the tokens <0x00>
  /// to <0xFF> of their bytes if the vocabulary has all of them. Throws a UserError naming `where` for a
  /// token of more than 1024 bytes.
  Unigram(Vocabulary vocabulary, std::vector<double> scores, std::optional<int32_t> unk, bool byte_fallback,
          std::string_view where);

  /// Appends the ids of one piece. Throws a UserError for an unknown character if there is no unknown token.
  void encode(std::string_view piece, PieceCache& cache, UnigramScratch& scratch,
              std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  std::optional<int32_t> unk() const { return unk_; }

 private:
  int32_t unknown() const;
  void find_best(std::string_view piece, UnigramScratch& scratch) const;
  /// Collects the tokens of the best segmentation from back to front, joining adjacent unknown tokens.
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
