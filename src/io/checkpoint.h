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

/// Full state of a run: the bytes of the persistent region (weights, optimizer state, averages) and a small
/// JSON text (schedule, data position, counters).
struct CheckpointContents {
  std::vector<std::byte> memory;
  std::string state;
};

/// Writes checkpoints on a background thread. save() only copies memory. The thread writes the files to a
/// temporary folder, each flushed, then the manifest with sizes and XXH3 hashes, and renames the folder at
/// the end. It deletes an older checkpoint only after the newer one is complete, and a damaged one of a later
/// step, which the resumed run has skipped. If a write fails (a full disk), the next call throws a UserError;
/// older checkpoints stay intact.
class CheckpointWriter {
 public:
  /// `memory_bytes`: size of the memory in every save(). Keeps the newest `num_kept` checkpoints.
  CheckpointWriter(fs::path folder, int64_t memory_bytes, int num_kept);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  /// Copies a checkpoint for writing; waits while the previous one is being written.
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

/// Newest complete checkpoint. `refused`: why each newer folder was skipped ("step-000000020: ..."), newest
/// first.
struct FoundCheckpoint {
  fs::path path;
  int64_t step = 0;
  std::vector<std::string> refused;
};
/// Finds the newest complete checkpoint. Throws a UserError if a folder cannot be read, since it may be
/// newer. If `refused` is not null, appends the skipped folders even if nothing is found.
std::optional<FoundCheckpoint> find_newest_checkpoint(const fs::path& folder,
                                                      std::vector<std::string>* refused);

/// A checkpoint folder, complete or not.
struct CheckpointInfo {
  fs::path path;
  int64_t step = 0;
  int64_t num_bytes = 0;  ///< total size of its files
  fs::file_time_type written;
  std::string fault;  ///< why it is not complete; empty if it is complete
};
/// Lists the checkpoints of a folder, newest first, and verifies the hash of each file.
std::vector<CheckpointInfo> list_checkpoints(const fs::path& folder);
/// Deletes all checkpoints except the newest `num_kept` complete ones. Returns the deleted ones, newest
/// first. Deletes nothing if none is complete.
std::vector<CheckpointInfo> prune_checkpoints(const fs::path& folder, int64_t num_kept);

/// Returns why a folder is not a complete checkpoint; nothing if it is one. Throws a UserError if it cannot
/// be read.
std::optional<std::string> check_checkpoint(const fs::path& path);

/// Reads a checkpoint. Throws a UserError if it is not complete.
CheckpointContents read_checkpoint(const fs::path& path);

/// Returns the state JSON of a complete checkpoint, without reading its memory image.
std::string read_state(const fs::path& path);

/// Returns the manifest of a checkpoint (JSON): its step, and size and XXH3 of both parts.
std::string make_manifest(int64_t step, std::span<const std::byte> memory, std::string_view state);
/// Returns why memory and state do not match a manifest; nothing if they do.
std::optional<std::string> check_parts(const std::string& manifest, std::span<const std::byte> memory,
                                       std::string_view state);

}  // namespace hearth::io
