#pragma once

#include <cstring>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

#include "text/sentencepiece_model.h"

namespace hearth::text {

/// The pieces of a GGUF file that holds a SentencePiece vocabulary (tokenizer.ggml.tokens, .scores,
/// .token_type, whose types are numbered as SentencePiece's). Throws on anything unforeseen.
class GgufVocabulary {
 public:
  explicit GgufVocabulary(std::string_view bytes) : rest_(bytes) {
    if (take(4) != "GGUF" || number<uint32_t>() != 3) throw std::runtime_error("not GGUF 3");
    number<uint64_t>();
    for (uint64_t left = number<uint64_t>(); left > 0; --left) {
      const std::string key(string());
      value(key, number<uint32_t>());
    }
  }
  std::vector<SentencePieceModel::Piece> pieces;

 private:
  enum : uint32_t { kFloat = 6, kBool = 7, kString = 8, kArray = 9 };

  std::string_view take(size_t count) {
    if (count > rest_.size()) throw std::runtime_error("GGUF is cut short");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }
  template <typename T>
  T number() {
    T value;
    std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
    return value;
  }
  std::string_view string() { return take(number<uint64_t>()); }
  static size_t bytes_of(uint32_t type) {
    constexpr size_t kBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type > 12 || kBytes[type] == 0) throw std::runtime_error("GGUF type");
    return kBytes[type];
  }
  SentencePieceModel::Piece& piece(uint64_t index) {
    if (index >= pieces.size()) pieces.resize(index + 1);
    return pieces[index];
  }
  void element(const std::string& key, uint32_t type, uint64_t index) {
    if (type == kString) {
      const std::string_view text = string();
      if (key == "tokenizer.ggml.tokens") piece(index).text = text;
    } else if (key == "tokenizer.ggml.scores") {
      piece(index).score = number<float>();
    } else if (key == "tokenizer.ggml.token_type") {
      piece(index).kind = static_cast<SentencePieceModel::PieceKind>(number<int32_t>());
    } else {
      take(bytes_of(type));
    }
  }
  void value(const std::string& key, uint32_t type) {
    if (type != kArray) return element("", type, 0);
    const auto of = number<uint32_t>();
    const auto count = number<uint64_t>();
    for (uint64_t i = 0; i < count; ++i) element(key, of, i);
  }

  std::string_view rest_;
};

}  // namespace hearth::text
