#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// Opens a tokenizer. In a model folder, uses the first of tokenizer.json, tokenizer.model (SentencePiece, or
/// tiktoken as in Llama 3), spiece.model, vocab.json + merges.txt, encoder.json + vocab.bpe that exists. The
/// argument may also be such a file; then tokenizer_config.json in its folder is read too. Throws a UserError
/// naming the file and the wrong or unsupported field.
std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& model_folder_or_file);

/// Returns the paths of the files of a tokenizer and of its chat template. The argument is the folder of the
/// tokenizer or one of its files.
std::vector<fs::path> tokenizer_files(const fs::path& model_folder_or_file);

}  // namespace hearth::text
