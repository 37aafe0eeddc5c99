#pragma once

#include "base/path.h"

namespace hearth {

/// First bytes of a GGUF file.
inline constexpr const char* kGgufMagic = "GGUF";

/// True if the path is a regular file that starts with kGgufMagic.
bool is_gguf_file(const fs::path& path);

/// Returns the folder with config.json and tokenizer of a model: the path itself, or, for a GGUF file, a
/// folder in the user's cache into which hub::unpack_gguf() writes them. Its name depends on the file's path,
/// size and time of modification. Throws a UserError if there is no cache folder.
fs::path config_folder(const fs::path& model);

}  // namespace hearth
