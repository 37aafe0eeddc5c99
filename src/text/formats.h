#pragma once

#include "text/pipeline.h"
#include "text/tokenizer_config.h"

namespace hearth::text {

/// Functions that open a tokenizer, one per file format. Each throws a UserError that names the file and the
/// problem.

/// Parses Hugging Face's tokenizer.json with a model of type BPE, Unigram, WordPiece or WordLevel. `file`:
/// name of the file in messages.
std::unique_ptr<Tokenizer> parse_tokenizer_json(std::string_view json, std::string_view file,
                                                const TokenizerConfig& config);

/// Opens vocab.json and merges.txt. The config's tokenizer_class determines the regular expression that
/// splits the text; the default is GPT-2's.
std::unique_ptr<Tokenizer> open_vocab_merges(const fs::path& vocab, const fs::path& merges,
                                             const TokenizerConfig& config);

/// is_tiktoken: true if the file has tiktoken's format, lines of a base64 token and its rank, which is also
/// its id. parse_tiktoken: opens such a file; only those of Llama 3 are supported.
bool is_tiktoken(std::string_view bytes);
std::unique_ptr<Tokenizer> parse_tiktoken(std::string_view bytes, std::string_view file,
                                          const TokenizerConfig& config);

/// Parses a SentencePiece model.
std::unique_ptr<Tokenizer> parse_sentencepiece(std::string_view bytes, std::string_view file,
                                               const TokenizerConfig& config);

}  // namespace hearth::text
