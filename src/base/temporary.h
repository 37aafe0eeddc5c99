#pragma once

#include "base/path.h"

namespace hearth {

/// An empty file or folder for what is not complete yet, beside `path`, under a hidden name that no one else
/// has. What killed processes have left under such names for the same path is deleted.
class Temporary {
 public:
  enum class Kind { file, folder };
  /// UserError naming `path`, or what stands for it to people, where it cannot be made.
  Temporary(const fs::path& path, Kind kind, const fs::path& known_as = {});
  /// Deletes what is still there.
  ~Temporary();
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;

  const fs::path& path() const { return path_; }

 private:
  /// Locks the new entry. Returns false if another process has deleted it, or is deleting it, as a leftover.
  bool lock();

  fs::path path_;
  int lock_ = -1;  ///< held while the process lives
};

/// Deletes what killed processes have left under temporary names for the path.
void delete_leftovers(const fs::path& path);

/// UserError that says why nothing can be written at the path; `code`: an errno.
[[noreturn]] void refuse_to_write(const fs::path& path, int code);

}  // namespace hearth
