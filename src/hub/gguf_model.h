#pragma once

#include <string>

#include "io/weight_files.h"
#include "text/ggml_vocabulary.h"

namespace hearth::hub {

/// Returns the text of a config.json for the model in a GGUF file: its metadata under transformers' keys.
/// Throws a UserError if the architecture, or a setting, is not supported.
std::string gguf_config_json(const io::GgufFile& file);

/// Returns the tokenizer tables of a GGUF file.
text::GgmlVocabulary gguf_vocabulary(const io::GgufFile& file);

/// Writes config.json, generation_config.json, tokenizer.json, tokenizer_config.json and chat template of a
/// GGUF file to config_folder(), unless they exist. Does nothing for paths that are not GGUF files.
/// Returns config_folder().
fs::path unpack_gguf(const fs::path& model);

/// Replaces the tensors of an opened GGUF file by views with transformers' names and order of rows. Throws a
/// UserError if a tensor is missing or unknown.
void show_gguf(io::WeightFiles& files);

}  // namespace hearth::hub
