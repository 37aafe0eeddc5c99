#pragma once

#include <span>

#include "base/path.h"

namespace hearth::recipe {

/// A file of the source folder recipes/ whose text is compiled into the program. `path`: path in the source
/// tree, such as "recipes/shakespeare/config.json".
struct BuiltInFile {
  const char* path;
  const char* text;
};
std::span<const BuiltInFile> built_in_files();

/// Returns a path at which the file `path` can be read: `path` itself if it exists or is not built in.
/// Otherwise writes all built-in files of its folder to the user's cache folder and returns the path there.
/// Throws a UserError if they cannot be written.
fs::path local_file(const fs::path& path);

}  // namespace hearth::recipe
