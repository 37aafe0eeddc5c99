#include "data/picture_files.h"

#include <algorithm>
#include <cctype>

#include "base/error.h"

namespace hearth::data {

bool is_picture_file(const fs::path& path) {
  std::string ending = path.extension().string();
  std::ranges::transform(ending, ending.begin(), [](unsigned char c) { return std::tolower(c); });
  return ending == ".jpg" || ending == ".jpeg" || ending == ".png";
}

std::map<std::string, fs::path> picture_files(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  std::error_code code;
  for (fs::directory_iterator at(folder, code), end; !code && at != end; at.increment(code)) {
    const fs::path& path = at->path();
    std::error_code ignored;
    if (path.filename().string()[0] == '.' || !at->is_regular_file(ignored) || !is_picture_file(path))
      continue;
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
