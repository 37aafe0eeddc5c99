#pragma once

#include "base/path.h"

namespace hearth {

/// An empty file or folder for incomplete output, in the folder of `path`, under a unique hidden name. The
/// constructor deletes leftovers of killed processes for the same path.
class Temporary {
 public:
  enum class Kind { file, folder };
  /// Creates the file or folder; UserError on failure, which names `path`, or `display_path` if given.
  Temporary(const fs::path& path, Kind kind, const fs::path& display_path = {});
  /// Deletes the file or folder if it still exists.
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }

 private:
  /// Locks the new entry, so that other processes do not delete it as a leftover. Returns false if one has
  /// deleted it already or is deleting it.
  bool lock();

  fs::path path_;
  int lock_ = -1;  ///< descriptor that holds the lock while this object exists; -1: none
};

/// Deletes temporary files and folders of killed processes for the path.
void delete_leftovers(const fs::path& path);

/// Throws a UserError with the reason why the path cannot be written; `code`: an errno value.
[[noreturn]] void refuse_to_write(const fs::path& path, int code);

}  // namespace hearth
