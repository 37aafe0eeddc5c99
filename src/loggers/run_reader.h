#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Last step whose training metrics were sent, and last step whose evaluation was sent; -1: none.
struct Cursor {
  int64_t train = -1;
  int64_t evaluation = -1;
};

/// Identity of a file, which changes if the file is replaced. {0, 0} if there is no file.
struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
/// Returns the identity of the file at a path.
FileId id_of(const fs::path& path);

/// Reads the JSON log of a run while the run writes it. If a resumed run replaces the log, restarts at its
/// first line and skips the steps up to the cursor: their reports were returned already, and the resumed run
/// computes the same bits.
class RunReader {
 public:
  /// `outdated`: identity of a log that an earlier run has left, which is not read.
  RunReader(const fs::path& run, FileId outdated);
  ~RunReader();
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  /// Restarts at the first line and skips the steps up to the cursor. `log_every`: updates between two
  /// rows of training metrics.
  void start(int64_t log_every, Cursor cursor);
  /// Returns the next reports, with at most kMaxMetrics metrics; empty if the log has no new complete line.
  Batch next();
  /// Returns the position after the reports that next() has returned.
  Cursor cursor() const { return cursor_; }
  /// True if the log exists and is not the outdated one.
  bool has_log() const;

  static constexpr size_t kMaxMetrics = 1000;

 private:
  bool open();
  void close();
  /// Returns the next complete line without its \n; nullopt at the end of the log.
  std::optional<std::string> read_line();
  std::optional<Row> row_of(const std::string& line);
  void add_images(int64_t step, Batch& batch) const;

  fs::path run_, path_;
  FileId outdated_, opened_;
  int64_t log_every_ = 1;
  Cursor cursor_;
  int descriptor_ = -1;
  std::string buffer_;  ///< bytes read from the log; read_line() has returned those before buffer_start_
  size_t buffer_start_ = 0;
  double elapsed_seconds_ = 0;  ///< training time of the run (elapsed_time) in the last line that contains it
  double start_time_ = 0;       ///< time at which elapsed_seconds_ was 0, in seconds since 1970
};

}  // namespace hearth::loggers
