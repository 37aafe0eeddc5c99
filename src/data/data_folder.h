#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// The folder of a dataset. Files that its labels refer to must be inside, unless `allow_outside` is set.
class DataFolder {
 public:
  /// `path`: the folder, or a file in it. For annotations/ or a file in annotations/, the folder is the
  /// parent of annotations/.
  DataFolder(const fs::path& path, bool allow_outside);

  bool allows_outside() const { return allow_outside_; }
  /// True if a file is in the folder or a subfolder, after resolving symbolic links.
  bool holds(const fs::path& file);
  /// Throws a UserError "WHERE: ..." if the file is outside of the folder and files outside are not allowed.
  void check(const fs::path& file, std::string_view where);

 private:
  fs::path root_;
  bool allow_outside_;
  std::map<fs::path, bool> folders_;  ///< cached results of holds(), by the folder of the file
};

/// Finds the image files that labels refer to by name.
class ImageFinder {
 public:
  /// `roots`: folders that image names are relative to, in order of preference.
  ImageFinder(DataFolder& folder, std::vector<fs::path> roots);

  /// Returns the path of the image; nullopt if it is not found. If no file has the full name, as for a URL or
  /// a path on another machine, searches for ever shorter ends of the name (dir/a.jpg, a.jpg). Backslashes
  /// count as slashes unless a file has them in its name. Throws a UserError "WHERE: ..." if the image is
  /// outside of the data's folder, or if another name already led to the same file.
  std::optional<fs::path> find(const std::string& name, std::string_view where);
  /// Number of images that were found by an end of their name.
  int64_t num_found_by_suffix() const { return num_shortened_; }

 private:
  std::optional<fs::path> find_by_path(const std::string& name, std::string_view where);
  std::optional<fs::path> find_by_end(std::string name);

  DataFolder& folder_;
  std::vector<fs::path> roots_;
  std::map<fs::path, std::string> names_;  ///< the name that led to each image found so far
  int64_t num_shortened_ = 0;
};

}  // namespace hearth::data
