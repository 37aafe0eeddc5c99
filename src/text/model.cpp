#include "text/model.h"

namespace hearth::text {
namespace {

struct Encode {
  std::string_view piece;
  ModelScratch& scratch;
  std::vector<int32_t>& ids;

  void operator()(const Bpe& model) const { model.encode(piece, scratch.cache, scratch.bpe, ids); }
  void operator()(const Unigram& model) const { model.encode(piece, scratch.cache, scratch.unigram, ids); }
  void operator()(const WordPiece& model) const { model.encode(piece, scratch.cache, ids); }
  void operator()(const WordLevel& model) const { model.encode(piece, ids); }
};

}  // namespace

void encode_piece(const Model& model, std::string_view piece, ModelScratch& scratch,
                  std::vector<int32_t>& ids) {
  std::visit(Encode{piece, scratch, ids}, model);
}

const Vocabulary& vocabulary_of(const Model& model) {
  return std::visit([](const auto& each) -> const Vocabulary& { return each.vocabulary(); }, model);
}

std::optional<int32_t> unk_of(const Model& model) {
  return std::visit([](const auto& each) { return each.unk(); }, model);
}

bool is_byte_level(const Model& model) {
  const Bpe* bpe = std::get_if<Bpe>(&model);
  return bpe != nullptr && bpe->options().byte_level;
}

}  // namespace hearth::text
