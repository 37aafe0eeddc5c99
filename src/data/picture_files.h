#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::data {

/// The JPEG and PNG files of a folder by their names without ending, in byte order; hidden ones are left out.
/// UserError for two of one name, and where the folder cannot be listed.
std::map<std::string, fs::path> picture_files(const fs::path& folder);

/// Of files that nobody has divided into splits: every fifth is for testing.
template <typename T>
std::vector<T> every_fifth_apart(std::vector<T> all, std::string_view split) {
  std::vector<T> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((i % 5 == 4) == (split == "test")) kept.push_back(std::move(all[i]));
  }
  return kept;
}

}  // namespace hearth::data
