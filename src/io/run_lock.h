#pragma once

#include "base/file.h"

namespace hearth::io {

/// Holds a run folder for one process at a time, by flock on its file `.lock`, which names the process. The
/// lock goes with the process, however that ends; where files cannot be locked, nobody is kept out.
class RunLock {
 public:
  /// The folder is there. Where another process holds it for longer than `patience_seconds`, UserError names
  /// that process. UserError if `.lock` is a symbolic link.
  RunLock(const fs::path& folder, double patience_seconds);
  ~RunLock();
  RunLock(const RunLock&) = delete;
  RunLock& operator=(const RunLock&) = delete;

 private:
  int descriptor_;
};

}  // namespace hearth::io
