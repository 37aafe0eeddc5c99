#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

/// Error messages for external files and names that Hearth does not read, such as pickles, Parquet or
/// names on a model hub. Each message contains the command that converts or downloads the file.
namespace hearth {

/// Returns advice to write hf:ORG/NAME for a missing path if it looks like a name on the Hugging Face hub
/// (ORG/NAME, or its URL), worded as the end of a sentence; otherwise an empty string. `prefix`: hf:datasets/
/// for data.
std::string download_advice(const fs::path& path, std::string_view prefix = "hf:");

/// Throws a UserError if bytes that should be a safetensors file are a bare pickle.
void refuse_unsupported_weights(std::span<const std::byte> bytes, std::string_view path);
/// Throws a UserError if a folder has no weights under the default file names, but weights in another format.
void refuse_unsupported_weights(const fs::path& folder);

/// Throws a UserError if the contents of a text file are compressed or Parquet.
void refuse_binary_data(std::string_view contents, const fs::path& path);
/// Throws a UserError if a file of records is missing, compressed, Parquet, CSV or TSV.
void refuse_unsupported_records(const fs::path& path);

}  // namespace hearth
