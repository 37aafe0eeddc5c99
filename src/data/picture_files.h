#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::data {

/// The JPEG and PNG files of a folder, sorted; hidden ones are left out. UserError where it cannot be listed.
std::vector<fs::path> sorted_pictures(const fs::path& folder);
/// The same by their names without ending; UserError for two of one name.
std::map<std::string, fs::path> picture_files(const fs::path& folder);

/// The split "train", or the other one, of data without splits: every fifth item is held out.
template <typename T>
std::vector<T> every_fifth_apart(std::vector<T> all, std::string_view split) {
  std::vector<T> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((i % 5 == 4) == (split != "train")) kept.push_back(std::move(all[i]));
  }
  return kept;
}

}  // namespace hearth::data
