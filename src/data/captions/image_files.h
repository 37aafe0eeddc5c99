#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::data {

/// Returns the files in a folder and its subfolders, sorted, with normalized paths. Skips hidden files, and
/// folders that were already visited by another path (symbolic links). Throws a UserError if a folder cannot
/// be listed.
std::vector<fs::path> files_below(const fs::path& folder);
/// Meaning of a folder's name of the form NUM_NAME (NUM has up to three digits), as in kohya's sd-scripts:
/// `repeats` is NUM, the number of times that its images occur in an epoch; `shows` is NAME, their caption.
/// Other names give the defaults.
struct FolderName {
  int64_t repeats = 1;
  std::optional<std::string> shows;
};
/// Parses the name of a folder, see FolderName.
FolderName parse_folder_name(std::string_view name);

/// Lists the image files of a folder, sorted, without hidden files. Throws a UserError if the folder cannot
/// be listed.
std::vector<fs::path> sorted_images(const fs::path& folder);
/// Returns the image files of a folder by name without extension; throws a UserError if two have the same
/// name.
std::map<std::string, fs::path> image_files(const fs::path& folder);

/// Reads a text file of at most `max_bytes` bytes, without a byte order mark (BOM) at its start.
std::string read_text(const fs::path& path, int64_t max_bytes);

/// Describes the files in `folders` that is_image_file() does not accept: their number and first names; empty
/// if there are none. Tables (.csv, .tsv) and hidden files are not counted.
std::string describe_unread(const std::set<fs::path>& folders);

/// Selects the items of a split from data without splits: every fifth item belongs to the held-out split, the
/// others to "train".
template <typename T>
std::vector<T> split_every_fifth(std::vector<T> all, std::string_view split) {
  std::vector<T> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    if ((i % 5 == 4) == (split != "train")) kept.push_back(std::move(all[i]));
  }
  return kept;
}

}  // namespace hearth::data
