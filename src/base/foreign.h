#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/file.h"

/// Files and names that people bring from elsewhere and that are not read here: each is refused with what to
/// do.
namespace hearth {

/// Where a path that is not there looks like a name on a model hub (org/name, or its address): how to
/// download it, as the end of a sentence. Else empty. `flags`: of the download's command line.
std::string download_advice(const fs::path& path, std::string_view flags = "");

/// Throws a UserError if bytes that should be safetensors are a pickle outside a zip archive, or a GGUF file.
void refuse_foreign_weights(std::span<const std::byte> bytes, std::string_view path);
/// Throws a UserError if a folder has no weights under the default names, but has weights in another format.
void refuse_foreign_weights(const fs::path& folder);

/// UserError where bytes that should be text are compressed or Parquet.
void refuse_binary_data(std::string_view contents, const fs::path& path);
/// The same for records, which CSV does not hold either; and where the path is not there.
void refuse_foreign_records(const fs::path& path);

}  // namespace hearth
