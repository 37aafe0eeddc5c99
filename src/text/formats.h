#pragma once

#include "text/pipeline.h"
#include "text/tokenizer_config.h"

namespace hearth::text {

/// One function per file format; each throws UserError naming the file and what is wrong in it.

/// Hugging Face's tokenizer.json with a model of type BPE, Unigram, WordPiece or WordLevel. `file` names it
/// in errors.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view file,
                                                const TokenizerConfig& config);

/// The contents of vocab.json and merges.txt; the split expression is chosen by the config's tokenizer_class,
/// and is GPT-2's where there is none.
std::unique_ptr<Tokenizer> open_vocab_merges(const fs::path& vocab, const fs::path& merges,
                                             const TokenizerConfig& config);

/// Lines of a token in base64 and its rank, which is its id; of all such files Llama 3's alone is known.
bool is_tiktoken(std::string_view bytes);
std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view bytes, std::string_view file,
                                          const TokenizerConfig& config);

/// A SentencePiece model.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, std::string_view file,
                                               const TokenizerConfig& config);

}  // namespace hearth::text
