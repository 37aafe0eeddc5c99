#include "recipe/built_in.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/process.h"

namespace hearth::recipe {
namespace {

/// Writes the files of a built-in folder to the user's cache folder and returns the path of the copy. Its
/// name contains a hash of the contents, so that versions of the program do not share a folder.
fs::path unpack(const fs::path& folder) {
  const fs::path cache = user_cache_folder();
  if (cache.empty())
    user_error("{} is built in, but there is no folder to unpack it to; set HOME", folder.string());
  uint64_t hash = 0;
  std::vector<const BuiltInFile*> files;
  for (const BuiltInFile& file : built_in_files()) {
    if (fs::path(file.path).parent_path() != folder) continue;
    hash = hash64(file.text, hash);
    files.push_back(&file);
  }
  fs::path to = cache / "recipes" / fmt::format("{}-{:016x}", folder.filename().string(), hash);
  for (const BuiltInFile* file : files) {
    const fs::path name = to / fs::path(file->path).filename();
    if (path_exists(name)) continue;
    make_folder(to);
    write_file_atomically(name, file->text);
  }
  return to;
}

}  // namespace

fs::path local_file(const fs::path& path) {
  const fs::path normal = path.lexically_normal();
  const bool is_built_in = std::ranges::any_of(
      built_in_files(), [&](const BuiltInFile& file) { return normal == fs::path(file.path); });
  if (!is_built_in || path_exists(path)) return path;
  return unpack(normal.parent_path()) / normal.filename();
}

}  // namespace hearth::recipe
