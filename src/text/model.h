#pragma once

#include <variant>

#include "text/bpe.h"
#include "text/unigram.h"
#include "text/word_models.h"

namespace hearth::text {

/// What gives ids to the pieces of a text.
using Model = std::variant<Bpe, Unigram, WordPiece, WordLevel>;

/// Working memory of one thread; belongs to one Model.
struct ModelScratch {
  PieceCache cache;
  BpeScratch bpe;
  UnigramScratch unigram;
};

/// Appends the ids of one piece. UserError for what the vocabulary cannot express.
void encode_piece(const Model& model, std::string_view piece, ModelScratch& scratch,
                  std::vector<int32_t>& ids);
const Vocabulary& vocabulary_of(const Model& model);
std::optional<int32_t> unk_of(const Model& model);
/// Whether the tokens are bytes, which files spell in GPT-2's alphabet.
bool is_byte_level(const Model& model);

}  // namespace hearth::text
