#pragma once

#include <string>
#include <vector>

#include "base/protobuf.h"
#include "text/sentencepiece_model.h"

namespace hearth::text {

/// The model as a file of SentencePiece.
inline std::string sentencepiece_file(const SentencePieceModel& model) {
  std::string file;
  ProtobufWriter out(file);
  for (const SentencePieceModel::Piece& piece : model.pieces)
    out.message(1, [&] {
      out.bytes(1, piece.text).real(2, piece.score).integer(3, static_cast<int64_t>(piece.kind));
    });
  out.message(2, [&] { out.integer(3, static_cast<int64_t>(model.kind)).integer(35, model.byte_fallback); });
  out.message(3, [&] {
    out.bytes(1, "identity").integer(3, model.add_dummy_prefix);
    out.integer(4, model.remove_extra_spaces).integer(5, model.escape_spaces);
  });
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
