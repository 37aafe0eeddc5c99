#include "data/picture_files.h"

#include <algorithm>

#include "base/error.h"
#include "data/image.h"

namespace hearth::data {

std::vector<fs::path> sorted_pictures(const fs::path& folder) {
  std::vector<fs::path> files;
  for (fs::path& path : list_folder(folder))
    if (is_image_file(path) && path.filename().string()[0] != '.') files.push_back(std::move(path));
  std::ranges::sort(files);
  return files;
}

std::map<std::string, fs::path> picture_files(const fs::path& folder) {
  std::map<std::string, fs::path> files;
  for (fs::path& path : sorted_pictures(folder)) {
    std::error_code ignored;
    if (!fs::is_regular_file(path, ignored)) continue;
    const auto [found, is_new] = files.try_emplace(path.stem().string(), path);
    if (!is_new) {
      user_error("{}: expected one picture of each name, found {} too", found->second.string(),
                 path.filename().string());
    }
  }
  return files;
}

}  // namespace hearth::data
