#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"

namespace hearth::text {

/// A tokenizer's tables as llama.cpp keeps them (tokenizer.ggml.* of GGUF files).
struct GgmlVocabulary {
  /// Numbered as in llama.h, which numbers them as SentencePiece does.
  enum class Kind : int32_t { normal = 1, unknown = 2, control = 3, user_defined = 4, unused = 5, byte = 6 };

  std::string model;  ///< "gpt2": merges of bytes; "llama": SentencePiece's, by score
  std::string pre;    ///< how a text is split, by llama.cpp's name: "llama-bpe", "qwen2", ..., "default"
  std::vector<std::string> tokens;
  std::vector<Kind> kinds;
  std::vector<float> scores;        ///< of model "llama"
  std::vector<std::string> merges;  ///< of model "gpt2": "left right"
  bool add_space_prefix = false;    ///< a blank goes before every text
};

/// The tokenizer of a model folder; ids up to `vocab_size` that it does not have become unused ones.
/// UserError for a tokenizer that llama.cpp would not split and merge in the same way.
GgmlVocabulary ggml_vocabulary(const fs::path& folder, int64_t vocab_size);

}  // namespace hearth::text
