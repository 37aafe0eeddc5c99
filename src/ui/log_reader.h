#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/function_ref.h"

namespace hearth::ui {

/// Reads each line that another process appends to a log once. Skips lines of more than 1 MiB.
class LogReader {
 public:
  explicit LogReader(fs::path log) : log_(std::move(log)) {}

  /// Calls `take` with up to `max_bytes` (at least 1 MiB) of new complete lines and their byte offsets. If
  /// the log was replaced, truncated or deleted, calls `restart` and reads it from the start. Returns true if
  /// more lines are left to read.
  bool read(int64_t max_bytes, FunctionRef<void()> restart,
            FunctionRef<void(std::string_view line, int64_t offset)> take);
  /// Returns the offset after the last line that was read.
  int64_t offset() const { return offset_; }
  /// Returns bytes [begin, end) of the log; empty if the log was replaced since the last read().
  std::string read_part(int64_t begin, int64_t end) const;

 private:
  fs::path log_;
  uint64_t file_number_ = 0;  ///< inode of the file that was read
  int64_t offset_ = 0;
  bool skips_line_ = false;  ///< true if the next bytes belong to a line that is too long
};

}  // namespace hearth::ui
