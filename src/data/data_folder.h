#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// The folder that the files named by a dataset's labels must be in, unless files outside of it are allowed.
class DataFolder {
 public:
  /// `path`: the folder, or a file in it. For annotations/ or a file in annotations/, the folder is the
  /// parent of annotations/.
  DataFolder(const fs::path& path, bool allow_outside);

  bool allows_outside() const { return allow_outside_; }
  /// True if a file is in the folder or below it, links followed.
  bool holds(const fs::path& file);
  /// Throws a UserError "WHERE: ..." if the file is outside of the folder and that is not allowed.
  void check(const fs::path& file, std::string_view where);

 private:
  fs::path root_;
  bool allow_outside_;
  std::map<fs::path, bool> folders_;  ///< cached results of holds() for the folders of files
};

/// Resolves the image names in labels to files.
class ImageFinder {
 public:
  /// `roots`: folders that names are relative to, in order of preference.
  ImageFinder(DataFolder& folder, std::vector<fs::path> roots);

  /// Returns the image's path; nullopt if there is none. If the path does not exist, as for a URL or a path
  /// on another machine, the last parts of the name are searched for. Backslashes separate folders unless a
  /// file has them in its name. UserError "WHERE: ..." for an image outside of the data's folder, and for two
  /// names of one file.
  std::optional<fs::path> find(const std::string& name, std::string_view where);
  /// Number of images that were found by the last parts of their names.
  int64_t num_found_by_suffix() const { return num_shortened_; }

 private:
  std::optional<fs::path> find_by_path(const std::string& name, std::string_view where);
  std::optional<fs::path> find_by_end(std::string name);

  DataFolder& folder_;
  std::vector<fs::path> roots_;
  std::map<fs::path, std::string> names_;  ///< name of each image found so far
  int64_t num_shortened_ = 0;
};

}  // namespace hearth::data
