#pragma once

#include <span>
#include <string_view>

namespace hearth::text {

/// A pre-tokenizer, which splits text into pieces before BPE merges, and its name in llama.cpp
/// (llama-vocab.cpp). In llama.cpp the name also determines ignore_merges.
struct GgmlPattern {
  const char* name;
  const char* pattern = nullptr;  ///< regular expression; null: GPT-2's, of a ByteLevel pre_tokenizer
  bool digits = false;            ///< true if each digit is a separate piece
  bool ignore_merges = false;
  bool adds_bos = false;  ///< true if BOS precedes a text unless the file forbids it
  bool composes = false;  ///< true if models with this pre-tokenizer normalize text to NFC
};

/// Returns the supported pre-tokenizers. If several names denote the same one, exported files have the first.
std::span<const GgmlPattern> ggml_patterns();

}  // namespace hearth::text
