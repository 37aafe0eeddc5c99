#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

/// Error messages for external files and names that Hearth does not read, such as pickles, GGUF, Parquet or
/// names on a model hub. Each message contains the command that converts or downloads the file.
namespace hearth {

/// Returns advice on how to download a missing path that looks like a name on a model hub
/// (org/name or its URL), as the end of a sentence; empty if it does not look like one. `flags`:
/// flags of the download command.
std::string download_advice(const fs::path& path, std::string_view flags = "");

/// Throws a UserError if bytes that should be safetensors are a pickle outside a zip archive, or a GGUF file.
void refuse_unsupported_weights(std::span<const std::byte> bytes, std::string_view path);
/// Throws a UserError if a folder has no weights under the default names, but has weights in another format.
void refuse_unsupported_weights(const fs::path& folder);

/// Throws a UserError if the contents of a text file are compressed or Parquet.
void refuse_binary_data(std::string_view contents, const fs::path& path);
/// Throws a UserError if a file of records is missing, compressed, Parquet, CSV or TSV.
void refuse_unsupported_records(const fs::path& path);

}  // namespace hearth
