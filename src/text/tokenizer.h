#pragma once

#include <memory>
#include <vector>

#include "base/file.h"
#include "text/tokenizer_base.h"

namespace hearth::text {

/// Opens the tokenizer of a model folder, the first found of tokenizer.json, tokenizer.model (SentencePiece,
/// or tiktoken as Llama 3 ships it), spiece.model, vocab.json + merges.txt, encoder.json + vocab.bpe; or of
/// one such file, with tokenizer_config.json read beside it. UserError names the file and the field that is
/// wrong or unsupported.
std::unique_ptr<Tokenizer> open_tokenizer(const fs::path& model_folder_or_file);

/// Returns the paths of the files of a tokenizer and of its chat template. The argument is the folder of the
/// tokenizer or one of its files.
std::vector<fs::path> tokenizer_files(const fs::path& model_folder_or_file);

}  // namespace hearth::text
