#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// Full state of a run: `memory` has the bytes of the persistent region (weights, optimizer state, averages);
/// `state` is a small JSON text (schedule, data position, counters).
struct CheckpointContents {
  std::vector<std::byte> memory;
  std::string state;
};

/// Writes checkpoints on a background thread; save() only copies memory. The thread writes and flushes the
/// files in a temporary folder, then the manifest with sizes and XXH3 hashes, and renames the folder at the
/// end. After that, it deletes older checkpoints beyond num_kept, and damaged checkpoints of later steps,
/// which the run skipped when it resumed. If a write fails (a full disk), the next call throws a UserError;
/// older checkpoints stay intact.
class CheckpointWriter {
 public:
  /// `memory_bytes`: size of `memory` in each save(). `num_kept`: number of newest checkpoints to keep.
  CheckpointWriter(fs::path folder, int64_t memory_bytes, int num_kept);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Copies memory and state for the background thread to write; waits while the previous checkpoint is being
  /// written.
  void save(int64_t step, std::span<const std::byte> memory, std::string_view state);
  /// Throws the error of the last write, if any. Does not wait.
  void check();
  /// Waits until all saved checkpoints are on disk.
  void flush();
  /// Deletes the checkpoints after `step`, if there is a complete one at or before `step`.
  void discard_later(int64_t step);

 private:
  void work();
  void write(int64_t step);
  void delete_others(int64_t step) const;
  void rethrow();

  fs::path folder_;
  int num_kept_;
  CheckpointContents pending_;
  int64_t pending_step_ = -1;
  bool stopping_ = false;
  std::exception_ptr error_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::thread thread_;
};

/// Newest complete checkpoint of a folder. `refused`: reason why each newer folder was skipped
/// ("step-000000020: ..."), newest first.
struct FoundCheckpoint {
  fs::path path;
  int64_t step = 0;
  std::vector<std::string> refused;
};
/// Finds the newest complete checkpoint. Throws a UserError if a checkpoint folder cannot be read, since it
/// may be newer. If `refused` is not null, appends the reasons for skipped folders, even if no complete one
/// is found.
std::optional<FoundCheckpoint> find_newest_checkpoint(const fs::path& folder,
                                                      std::vector<std::string>* refused);

/// A checkpoint folder, complete or not.
struct CheckpointInfo {
  fs::path path;
  int64_t step = 0;
  int64_t num_bytes = 0;  ///< total size of the files in bytes
  fs::file_time_type written;
  std::string fault;  ///< reason why the checkpoint is not complete; empty if it is complete
};
/// Lists the checkpoints of a folder, newest first, and verifies the hash of each file.
std::vector<CheckpointInfo> list_checkpoints(const fs::path& folder);
/// Deletes all checkpoints except the newest `num_kept` complete ones. Returns the deleted ones, newest
/// first. Deletes nothing if none is complete.
std::vector<CheckpointInfo> prune_checkpoints(const fs::path& folder, int64_t num_kept);

/// Returns the reason why a folder is not a complete checkpoint; nothing if it is one. Throws a UserError if
/// the folder cannot be read.
std::optional<std::string> check_checkpoint(const fs::path& path);

/// Reads a checkpoint. Throws a UserError if it is not complete.
CheckpointContents read_checkpoint(const fs::path& path);

/// Returns CheckpointContents::state of a complete checkpoint, without reading its memory.
std::string read_state(const fs::path& path);

/// Returns the manifest of a checkpoint as JSON: its step, and size and XXH3 hash of memory and state.
std::string make_manifest(int64_t step, std::span<const std::byte> memory, std::string_view state);
/// Returns a reason if memory or state do not match a manifest; nothing if they do.
std::optional<std::string> check_parts(const std::string& manifest, std::span<const std::byte> memory,
                                       std::string_view state);

}  // namespace hearth::io
