#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"

namespace hearth::data {

/// The folder that a dataset may have files in. Labels name files: none outside of this folder is read unless
/// that is allowed.
class DataFolder {
 public:
  /// `path`: the folder, or a file in it. Of a folder or file in annotations/ it is the folder above.
  DataFolder(const fs::path& path, bool allow_outside);

  bool allows_outside() const { return allow_outside_; }
  /// True if a file is in the folder or below it, links followed.
  bool holds(const fs::path& file);
  /// UserError "WHERE: ..." for a file outside, unless that is allowed.
  void check(const fs::path& file, std::string_view where);

 private:
  fs::path root_;
  bool allow_outside_;
  std::map<fs::path, bool> folders_;  ///< what holds() found for the folders of files
};

/// Finds the images that labels name.
class ImageFinder {
 public:
  /// `roots`: folders that names are relative to; the first that has the image counts.
  ImageFinder(DataFolder& folder, std::vector<fs::path> roots);

  /// Returns the image's path. A name that is nowhere, such as a path of another machine or a URL, is looked
  /// for by its last parts. Backslashes separate folders where no file has them in its name. UserError
  /// "WHERE: ..." for an image outside of the data's folder, and for one file under two names.
  std::optional<fs::path> find(const std::string& name, std::string_view where);
  /// Number of images that were found by the last parts of their names.
  int64_t num_shortened() const { return num_shortened_; }

 private:
  std::optional<fs::path> find_as_given(const std::string& name, std::string_view where);
  std::optional<fs::path> find_by_end(std::string name);

  DataFolder& folder_;
  std::vector<fs::path> roots_;
  std::map<fs::path, std::string> names_;  ///< of the images found so far
  int64_t num_shortened_ = 0;
};

}  // namespace hearth::data
