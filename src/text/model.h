#pragma once

#include <variant>

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/word_models.h"

namespace hearth::text {

/// A tokenizer model (BPE, Unigram, WordPiece, WordLevel): maps pre-tokenized pieces to token ids.
using Model = std::variant<Bpe, Unigram, WordPiece, WordLevel>;

/// Scratch memory of one thread. Use it with one Model only.
struct ModelScratch {
  PieceCache cache;
  BpeScratch bpe;
  UnigramScratch unigram;
};

/// Appends the token ids of one piece. Throws a UserError if the vocabulary cannot express the piece.
void encode_piece(const Model& model, std::string_view piece, ModelScratch& scratch,
                  std::vector<int32_t>& ids);
const Vocabulary& vocabulary_of(const Model& model);
std::optional<int32_t> unk_of(const Model& model);
/// True if tokens are byte strings, which files write in GPT-2's alphabet.
bool is_byte_level(const Model& model);

}  // namespace hearth::text
