#pragma once

#include <bit>
#include <string>
#include <vector>

#include "text/sentencepiece_model.h"

namespace hearth::text {

inline std::string varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  return bytes + static_cast<char>(value);
}
inline std::string number_field(uint32_t field, uint64_t value) { return varint(field << 3) + varint(value); }
inline std::string bytes_field(uint32_t field, const std::string& bytes) {
  return varint(field << 3 | 2) + varint(bytes.size()) + bytes;
}
inline std::string float_field(uint32_t field, float value) {
  std::string bytes = varint(field << 3 | 5);
  for (int shift = 0; shift < 32; shift += 8)
    bytes.push_back(static_cast<char>(std::bit_cast<uint32_t>(value) >> shift));
  return bytes;
}

/// The model as a file of SentencePiece.
inline std::string sentencepiece_file(const SentencePieceModel& model) {
  std::string file;
  for (const SentencePieceModel::Piece& piece : model.pieces) {
    file += bytes_field(1, bytes_field(1, piece.text) + float_field(2, piece.score) +
                               number_field(3, static_cast<uint64_t>(piece.kind)));
  }
  file += bytes_field(
      2, number_field(3, static_cast<uint64_t>(model.kind)) + number_field(35, model.byte_fallback));
  file +=
      bytes_field(3, bytes_field(1, "identity") + number_field(3, model.add_dummy_prefix) +
                         number_field(4, model.remove_extra_spaces) + number_field(5, model.escape_spaces));
  return file;
}

/// <unk>, <s>, </s>, the bytes, and then these pieces with scores 0, -1, -2, ... : Llama 2's form.
inline SentencePieceModel llama2_model(const std::vector<std::string>& pieces) {
  using Kind = SentencePieceModel::PieceKind;
  SentencePieceModel model{
      .kind = SentencePieceModel::Kind::bpe, .byte_fallback = true, .remove_extra_spaces = false};
  model.pieces = {{"<unk>", 0, Kind::unknown}, {"<s>", 0, Kind::control}, {"</s>", 0, Kind::control}};
  for (int byte = 0; byte < 256; ++byte) {
    constexpr const char* kDigits = "0123456789ABCDEF";
    model.pieces.push_back(
        {std::string("<0x") + kDigits[byte / 16] + kDigits[byte % 16] + ">", 0, Kind::byte});
  }
  for (size_t i = 0; i < pieces.size(); ++i) {
    model.pieces.push_back({pieces[i], -static_cast<float>(i), Kind::normal});
  }
  return model;
}

}  // namespace hearth::text
