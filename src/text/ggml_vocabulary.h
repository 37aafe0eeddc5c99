#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::text {

/// Tokenizer tables in llama.cpp's form (keys tokenizer.ggml.* of GGUF files).
struct GgmlVocabulary {
  /// Token types with the numbers of llama.h and SentencePiece.
  enum class Kind : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  std::string model;  ///< "gpt2": byte-level BPE with merges; "llama": SentencePiece with scores
  std::string pre;    ///< llama.cpp's name of the pre-tokenizer: "llama-bpe", "qwen2", ..., "default"
  std::vector<std::string> tokens;
  std::vector<Kind> kinds;
  std::vector<float> scores;        ///< model "llama" only
  std::vector<std::string> merges;  ///< model "gpt2" only, each "left right"
  bool add_space_prefix = false;    ///< true if a space is put before each text

  // Set only for vocabularies that are read from GGUF files; the exporter gets these values from the
  // tokenizer.
  std::optional<int32_t> bos, eos, unk, pad;
  std::optional<bool> add_bos, add_eos;  ///< nullopt: llama.cpp's default for the tokenizer
  /// True if added tokens other than BOS, UNK and <|endoftext|> also consume the white space after them.
  bool strips_right = false;
};

/// Converts the tokenizer of a model folder; ids below `vocab_size` without a token become unused tokens.
/// Throws a UserError if llama.cpp would tokenize differently.
GgmlVocabulary ggml_vocabulary(const fs::path& folder, int64_t vocab_size);

/// Converts tables of a GGUF file to the text of a tokenizer.json, the inverse of ggml_vocabulary(). Throws a
/// UserError naming `where` for a tokenizer model or pre-tokenizer that is not supported, or tables of
/// different lengths.
std::string tokenizer_json(const GgmlVocabulary& vocabulary, const std::string& where);
/// Returns the text of the tokenizer_config.json that belongs to tokenizer_json().
std::string tokenizer_config_json(const GgmlVocabulary& vocabulary);

}  // namespace hearth::text
