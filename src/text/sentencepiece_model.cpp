#include "text/sentencepiece_model.h"

#include "base/error.h"
#include "base/protobuf.h"
#include "text/vocabulary.h"

namespace hearth::text {
namespace {

SentencePieceModel::Piece parse_piece(ProtobufReader message, size_t index, std::string_view file) {
  SentencePieceModel::Piece piece;
  while (const auto field = message.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = field->as_float();
    if (field->number != 3) continue;
    if (field->value < 1 || field->value > 6) {
      user_error("{}: expected piece {} to have a type from 1 to 6, got {}", file, index, field->value);
    }
    piece.kind = static_cast<SentencePieceModel::PieceKind>(field->value);
  }
  if (piece.text.empty()) user_error("{}: expected piece {} to have a text", file, index);
  return piece;
}

void parse_trainer(ProtobufReader message, std::string_view file, SentencePieceModel& model) {
  while (const auto field = message.next()) {
    if (field->number == 3) {
      if (field->value < 1 || field->value > 4) {
        user_error("{}: expected a model_type from 1 to 4, got {}", file, field->value);
      }
      model.kind = static_cast<SentencePieceModel::Kind>(field->value);
    }
    if (field->number == 24) model.space_as_suffix = field->value != 0;
    if (field->number == 35) model.byte_fallback = field->value != 0;
  }
}

void parse_normalizer(ProtobufReader message, SentencePieceModel& model) {
  while (const auto field = message.next()) {
    if (field->number == 2) model.maps_characters = !field->bytes.empty();
    if (field->number == 3) model.add_dummy_prefix = field->value != 0;
    if (field->number == 4) model.remove_extra_spaces = field->value != 0;
    if (field->number == 5) model.escape_spaces = field->value != 0;
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view file) {
  SentencePieceModel model;
  ProtobufReader message(bytes, file,
                         "this is neither a SentencePiece model nor tiktoken ranks, or it is incomplete; "
                         "download it again");
  while (const auto field = message.next()) {
    if (field->number == 1) {
      if (std::ssize(model.pieces) > Vocabulary::kMaxId) {
        user_error("{}: expected at most {} pieces", file, Vocabulary::kMaxId + 1);
      }
      model.pieces.push_back(parse_piece(message.message(*field), model.pieces.size(), file));
    }
    if (field->number == 2) parse_trainer(message.message(*field), file, model);
    if (field->number == 3) parse_normalizer(message.message(*field), model);
  }
  if (model.pieces.empty()) user_error("{}: expected a SentencePiece model, it has no pieces", file);
  return model;
}

}  // namespace hearth::text
