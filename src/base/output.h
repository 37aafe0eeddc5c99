#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/temporary.h"

namespace hearth {

/// UserError unless a file can be written at the path, whether or not there is one already. Whoever works
/// long before writing asks first.
void expect_place_for_file(const fs::path& path);
/// UserError unless files can be written into the folder, which may not be there yet. Leaves nothing behind.
void expect_place_for_folder(const fs::path& folder);

/// A folder that is filled under a temporary name and appears whole: at a path where nothing is, or in an
/// empty folder, which stays the folder that it is.
class NewFolder {
 public:
  /// UserError where the path is neither, or cannot be written to; then nothing has been made.
  explicit NewFolder(const fs::path& path);
  /// Deletes what was not committed.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Where to write until then.
  const fs::path& contents() const { return contents_; }
  /// Puts everything in place and flushes it to the disk. UserError where the path was taken meanwhile.
  void commit();

 private:
  fs::path path_;
  bool was_there_ = false;
  std::vector<fs::path> made_;  ///< folders above it, lowest first
  std::optional<Temporary> temporary_;
  fs::path contents_;
};

}  // namespace hearth
