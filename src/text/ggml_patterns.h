#pragma once

#include <span>
#include <string_view>

namespace hearth::text {

/// A split of text into pieces before merging, and llama.cpp's name of it (llama-vocab.cpp), which also
/// determines ignore_merges there.
struct GgmlPattern {
  const char* name;
  const char* pattern = nullptr;  ///< regular expression; null: GPT-2's, of a ByteLevel pre_tokenizer
  bool digits = false;            ///< true if each digit is a separate piece
  bool ignore_merges = false;
  bool adds_bos = false;  ///< true if BOS precedes a text unless the file forbids it
  bool composes = false;  ///< true if models with this split normalize text to NFC
};

/// Returns the splits that are supported. Where several names denote the same split, the first is written.
std::span<const GgmlPattern> ggml_patterns();

}  // namespace hearth::text
