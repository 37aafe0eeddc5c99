#pragma once

#include <optional>

#include "text/merge_table.h"
#include "text/piece_cache.h"
#include "text/vocabulary.h"

namespace hearth::text {

/// U+2581, which represents a space in SentencePiece's vocabularies.
inline constexpr std::string_view kMetaspace = "\xE2\x96\x81";

/// Options of Bpe, named as in tokenizer.json.
struct BpeOptions {
  /// True if merging starts from bytes and tokens are byte strings; false if it starts from characters.
  bool byte_level = false;
  /// True if a character without a token is encoded as the tokens <0x00> to <0xFF> of its bytes.
  bool byte_fallback = false;
  /// True if a piece that is a token of the vocabulary is encoded as that token, without applying merges.
  bool ignore_merges = false;
  /// True if adjacent unknown characters become one unknown token.
  bool fuse_unk = false;
  std::optional<int32_t> unk;
  /// Suffix that marks the end of a word in the vocabulary ("</w>"): it is appended to the last character of
  /// a piece. Empty if there is none.
  std::string end_of_word_suffix;
};

/// Scratch memory of one thread. Use it with one Bpe only.
class BpeScratch {
  friend class Bpe;
  /// A symbol of the piece, in a doubly linked list. `previous`, `next`: indices in `symbols`, -1 at the
  /// ends.
  struct Symbol {
    int32_t id;  ///< token id; -1 if the symbol was merged into its predecessor
    int32_t previous;
    int32_t next;
  };
  /// A possible merge of a symbol with its successor.
  struct Candidate {
    /// Merge rank in the upper 32 bits, index of the symbol in the lower: the smallest merges first.
    uint64_t rank_and_index;
    int32_t merged;
    bool operator<(const Candidate& other) const { return rank_and_index > other.rank_and_index; }
  };
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
  std::string lookup;
};

/// Byte-pair encoding (Sennrich et al. 2016): repeatedly merges the adjacent pair of symbols with the lowest
/// merge rank, leftmost first.
class Bpe {
 public:
  /// Throws a UserError naming `where` if byte_fallback is set and the vocabulary lacks one of the byte
  /// tokens.
  Bpe(Vocabulary vocabulary, const std::vector<Merge>& merges, BpeOptions options, std::string_view where);

  /// Appends the token ids of one piece to `ids`. Throws a UserError if the vocabulary has no tokens for a
  /// character of the piece.
  void encode(std::string_view piece, PieceCache& cache, BpeScratch& scratch,
              std::vector<int32_t>& ids) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }
  std::optional<int32_t> unk() const { return options_.unk; }

 private:
  void find_bytes(std::string_view where);
  /// True if no token contains the end of a word and the start of the next one, so that words can be encoded
  /// and cached separately.
  bool no_token_spans_words(const std::vector<Merge>& merges) const;
  void encode_word(std::string_view word, PieceCache& cache, BpeScratch& scratch,
                   std::vector<int32_t>& ids) const;
  /// Fills scratch.symbols with the initial symbols of a word: its bytes or characters.
  void start(std::string_view word, BpeScratch& scratch) const;
  void start_character(std::string_view character, bool last, BpeScratch& scratch, bool& unknown) const;
  void merge_all(BpeScratch& scratch) const;
  /// Pushes the merge of the symbol at `symbol_index` with its successor onto the heap, if there is such a
  /// merge.
  void offer(BpeScratch& scratch, int32_t symbol_index) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  std::string where_;
  std::array<int32_t, 256> byte_ids_;
  bool split_words_ = false;
};

/// Derives merges from token ranks (tiktoken): two tokens whose concatenation is a token merge with the rank
/// of that token. Tokens with a negative rank are not used. `rank` has one entry per id. Throws a UserError
/// naming `where` for a token that is too long to try all its split points.
std::vector<Merge> merges_from_ranks(const Vocabulary& vocabulary, std::span<const int32_t> rank,
                                     std::string_view where);

}  // namespace hearth::text
