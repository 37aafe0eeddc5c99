#pragma once

#include <span>

#include "base/path.h"

namespace hearth::recipe {

/// A file of recipes/ that is compiled into the program, by its path in the source tree:
/// "recipes/shakespeare/config.json".
struct BuiltInFile {
  const char* path;
  const char* text;
};
std::span<const BuiltInFile> built_in_files();

/// Returns `path` where it exists or is not built in; else the same file in the user's cache folder, where
/// all files of its folder are written. UserError where that cannot be written.
fs::path local_file(const fs::path& path);

}  // namespace hearth::recipe
