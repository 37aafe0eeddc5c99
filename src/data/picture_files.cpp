#include "data/picture_files.h"

#include "base/error.h"
#include "data/image.h"

namespace hearth::data {

std::map<std::string, fs::path> picture_files(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (path.filename().string()[0] == '.' || !at->is_regular_file(ignored) || !is_image_file(path)) continue;
    const auto [found, is_new] = files.emplace(path.stem().string(), path);
    if (!is_new) {
      user_error("{}: expected one picture of each name, found {} too", found->second.string(),
                 path.filename().string());
    }
  }
  if (code) user_error("cannot list the folder {}: {}", folder.string(), code.message());
  return files;
}

}  // namespace hearth::data
