#pragma once

#include <optional>
#include <vector>

#include "base/file.h"
#include "base/temporary.h"

namespace hearth {

/// Throws a UserError unless a file can be created or overwritten at the path. Call this before long work, so
/// that a wrong path is reported early.
void check_writable_file(const fs::path& path);
/// Throws a UserError unless files can be written into the folder, which need not exist. Leaves no files
/// behind.
void check_writable_folder(const fs::path& folder);

/// An output folder that is filled under a temporary name and appears at its path, complete, by a rename. The
/// path must not exist or be an empty folder, which then keeps its permissions and owner.
class NewFolder {
 public:
  /// Creates the temporary folder; UserError, with nothing created, if the path is not empty or not writable.
  explicit NewFolder(const fs::path& path);
  /// Deletes the contents unless commit() was called.
  ~NewFolder();
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;

  /// Folder to write into until commit().
  const fs::path& contents() const { return contents_; }
  /// Moves the contents to the path and flushes them to disk. UserError if the path was created
  /// or filled meanwhile.
  void commit();

 private:
  fs::path path_;
  bool was_there_ = false;
  std::vector<fs::path> made_;  ///< parent folders that were created for the path, deepest first
  std::optional<Temporary> temporary_;
  fs::path contents_;
};

}  // namespace hearth
