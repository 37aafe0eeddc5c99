#pragma once

#include <optional>

#include "text/merge_table.h"
#include "text/piece_cache.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// U+2581, which stands for a space in SentencePiece's vocabularies.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

struct BpeOptions {
  /// Symbols start as bytes, and tokens are their bytes; otherwise as characters.
  bool byte_level = false;
  /// A character that is no token becomes the tokens <0x00> to <0xFF> of its bytes.
  bool byte_fallback = false;
  /// A whole piece that is a token is taken as it is.
  bool ignore_merges = false;
  /// Neighboring unknown characters become one unknown token.
  bool fuse_unk = false;
  std::optional<int32_t> unk;
  /// What the last character of a piece carries in the vocabulary ("</w>").
  std::string end_of_word_suffix;
};

/// Working memory of one thread; belongs to one Bpe.
class BpeScratch {
  friend class Bpe;
  struct Symbol {
    int32_t id;
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint64_t rank_and_place;
    int32_t merged;
    bool operator<(const Candidate& other) const { return rank_and_place > other.rank_and_place; }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string lookup;
};

/// Byte-pair encoding (Sennrich et al. 2016): of all neighbors the pair of the lowest rank merges, leftmost
/// first.
class Bpe {
 public:
  /// UserError naming `where` for a byte_fallback without all bytes.
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, std::string_view where);

  /// Appends the ids of one piece. UserError for what the vocabulary cannot express.
  void encode(std::string_view piece, PieceCache& cache, BpeScratch& scratch,
              std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }
  std::optional<int32_t> unk() const { return options_.unk; }

 private:
  void find_bytes(std::string_view where);
  bool words_are_apart(const std::vector<Merge>& merges) const;
  void encode_word(std::string_view word, PieceCache& cache, BpeScratch& scratch,
                   std::vector<int32_t>& ids) const;
  void start(std::string_view word, BpeScratch& scratch) const;
  void start_character(std::string_view character, bool last, BpeScratch& scratch, bool& unknown) const;
  void merge_all(BpeScratch& scratch) const;
  void offer(BpeScratch& scratch, int32_t place) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::string where_;
  std::array<int32_t, 256> byte_ids_;
  bool split_words_ = false;
};

/// The merges of a vocabulary whose tokens have ranks: whenever two tokens side by side spell a third, they
/// merge with its rank. Tokens of a negative rank take no part. `rank` has an entry per id. UserError naming
/// `where` for a token that is too long to be cut everywhere.
std::vector<Merge> merges_from_ranks(const Vocabulary& vocabulary, std::span<const int32_t> rank,
                                     std::string_view where);

}  // namespace hearth::text
