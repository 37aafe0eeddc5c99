#pragma once

#include <cstdint>

#include "base/file.h"

namespace hearth::io {

/// A request of another process to the process that trains in a run folder.
enum class RunRequest : uint8_t {
  none,
  checkpoint,  ///< save a checkpoint after the current update and continue
  stop,        ///< save a checkpoint after the current update and end, as after SIGINT
};

/// Writes the request to the file `.request` of a run folder, in place of an earlier one. Throws a UserError
/// if the folder is not writable or `.request` is a symbolic link.
void send_request(const fs::path& run, RunRequest request);

/// Reads the requests in a run folder. Checks the file at most twice per second, without allocating memory
/// unless there is one.
class RequestReader {
 public:
  /// Deletes a request that an earlier process has left.
  explicit RequestReader(const fs::path& run);
  /// Returns a new request and deletes its file; none if there is no request or an unknown one.
  RunRequest take();

 private:
  fs::path file_;
  double due_at_ = 0;  ///< time of the next check, as process_seconds()
};

}  // namespace hearth::io
