#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "loggers/logger.h"

namespace hearth::loggers {

/// Last steps whose reports were sent; -1: none.
struct Cursor {
  int64_t train = -1;
  int64_t evaluation = -1;
};

/// Identity of a file: changes if the file is replaced. {0, 0}: there is no file.
struct FileId {
  uint64_t device = 0, inode = 0;
  bool operator==(const FileId&) const = default;
};
FileId id_of(const fs::path& path);

/// Reads the JSON log of a run while the run writes it. If a resumed run replaces the log, starts again at
/// its first line, without the steps up to the cursor: they were sent, and computing them again gives the
/// same bits.
class RunReader {
 public:
  /// Does not read a log with the id `outdated`, which an earlier run has left.
  RunReader(const fs::path& run, FileId outdated);
  ~RunReader();
  RunReader(const RunReader&) = delete;
  RunReader& operator=(const RunReader&) = delete;

  /// Starts again at the first line, without the steps up to the cursor. `log_every`: updates between two
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
  std::string buffer_;  ///< bytes that were read from the log, from buffer_start_ on not returned yet
  size_t buffer_start_ = 0;
  double elapsed_seconds_ = 0;  ///< training time of the run in the last line that has one
  double start_time_ = 0;       ///< time of the update with elapsed_seconds 0, in seconds since 1970
};

}  // namespace hearth::loggers
