#include "text/sentencepiece_model.h"

#include <bit>
#include <optional>

#include "base/error.h"
#include "text/vocabulary.h"

namespace hearth::text {
namespace {

/// One field of a protocol buffer message: its number, and its value as a number or as bytes.
struct Field {
  uint32_t number = 0;
  uint64_t value = 0;
  std::string_view bytes;
};

/// Walks over the fields of a message, bounded by its bytes.
class Message {
 public:
  Message(std::string_view bytes, std::string_view file) : rest_(bytes), file_(file) {}

  std::optional<Field> next() {
    if (rest_.empty()) return std::nullopt;
    const uint64_t tag = varint();
    Field field{.number = static_cast<uint32_t>(tag >> 3)};
    if (field.number == 0 || tag >> 3 > UINT32_MAX) refuse();
    switch (tag & 7) {
      case 0:
        field.value = varint();
        break;
      case 1:
        take(8);
        break;
      case 2:
        field.bytes = take(varint());
        break;
      case 5:
        field.value = fixed32();
        break;
      default:
        refuse();
    }
    return field;
  }

 private:
  [[noreturn]] void refuse() const {
    user_error(
        "{}: this is neither a SentencePiece model nor tiktoken ranks, or it is incomplete; download it "
        "again",
        file_);
  }
  std::string_view take(uint64_t count) {
    if (count > rest_.size()) refuse();
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  uint64_t varint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<uint8_t>(take(1)[0]);
      value |= uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    refuse();
  }
  uint32_t fixed32() {
    uint32_t value = 0;
    const std::string_view bytes = take(4);
    for (size_t i = 0; i < 4; ++i) value |= uint32_t{static_cast<uint8_t>(bytes[i])} << (8 * i);
    return value;
  }

  std::string_view rest_;
  std::string_view file_;
};

SentencePieceModel::Piece parse_piece(std::string_view bytes, size_t index, std::string_view file) {
  SentencePieceModel::Piece piece;
  Message message(bytes, file);
  while (const std::optional<Field> field = message.next()) {
    if (field->number == 1) piece.text = field->bytes;
    if (field->number == 2) piece.score = std::bit_cast<float>(static_cast<uint32_t>(field->value));
    if (field->number != 3) continue;
    if (field->value < 1 || field->value > 6) {
      user_error("{}: expected piece {} to have a type from 1 to 6, got {}", file, index, field->value);
    }
    piece.kind = static_cast<SentencePieceModel::PieceKind>(field->value);
  }
  if (piece.text.empty()) user_error("{}: expected piece {} to have a text", file, index);
  return piece;
}

void parse_trainer(std::string_view bytes, std::string_view file, SentencePieceModel& model) {
  Message message(bytes, file);
  while (const std::optional<Field> field = message.next()) {
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

void parse_normalizer(std::string_view bytes, std::string_view file, SentencePieceModel& model) {
  Message message(bytes, file);
  while (const std::optional<Field> field = message.next()) {
    if (field->number == 2) model.maps_characters = !field->bytes.empty();
    if (field->number == 3) model.add_dummy_prefix = field->value != 0;
    if (field->number == 4) model.remove_extra_spaces = field->value != 0;
    if (field->number == 5) model.escape_spaces = field->value != 0;
  }
}

}  // namespace

SentencePieceModel parse_sentencepiece_model(std::string_view bytes, std::string_view file) {
  SentencePieceModel model;
  Message message(bytes, file);
  while (const std::optional<Field> field = message.next()) {
    if (field->number == 1) {
      if (std::ssize(model.pieces) > Vocabulary::kMaxId) {
        user_error("{}: expected at most {} pieces", file, Vocabulary::kMaxId + 1);
      }
      model.pieces.push_back(parse_piece(field->bytes, model.pieces.size(), file));
    }
    if (field->number == 2) parse_trainer(field->bytes, file, model);
    if (field->number == 3) parse_normalizer(field->bytes, file, model);
  }
  if (model.pieces.empty()) user_error("{}: expected a SentencePiece model, it has no pieces", file);
  return model;
}

}  // namespace hearth::text
