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

/// Everything a run needs to continue: the bytes of the persistent region and a small JSON text (schedule,
/// data position, counters).
struct CheckpointContents {
  std::vector<std::byte> memory;
  std::string state;
};

/// Writes checkpoints on its own thread. save() only copies memory; files go to a temporary folder, each
/// flushed, the manifest with sizes and XXH3 hashes last, then one rename. An older checkpoint is deleted
/// only when the newer one is complete, and so is a damaged one of a later step: a resumed run passed it
/// over. A failed write (a full disk) surfaces as UserError at the next call and leaves older ones intact.
class CheckpointWriter {
 public:
  /// `memory_bytes`: the size every save() will have. Keeps the newest `num_kept`.
  CheckpointWriter(fs::path folder, int64_t memory_bytes, int num_kept);
  ~CheckpointWriter();
  CheckpointWriter(const CheckpointWriter&) = delete;
  CheckpointWriter& operator=(const CheckpointWriter&) = delete;

  void save(int64_t step, std::span<const std::byte> memory, std::string_view state);
  /// Throws what the last write failed with; waits for nothing.
  void check();
  /// Waits until everything saved is on the disk.
  void flush();
  /// Deletes the checkpoints after `step`, if a complete one of at most that step is left.
  void discard_behind(int64_t step);

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

/// The newest complete checkpoint (UserError when what lies there cannot be read: it may be newer), and why
/// each newer folder was passed over ("step-000000020: ..."), newest first.
struct FoundCheckpoint {
  fs::path path;
  int64_t step = 0;
  std::vector<std::string> refused;
};
std::optional<FoundCheckpoint> find_newest_checkpoint(const fs::path& folder,
                                                      std::vector<std::string>* refused);

struct CheckpointInfo {
  fs::path path;
  int64_t step = 0;
  int64_t num_bytes = 0;  ///< of its files
  fs::file_time_type written;
  std::string fault;  ///< why it is not complete, or empty
};
/// What lies in the folder, newest first; every byte is held against its hash.
std::vector<CheckpointInfo> list_checkpoints(const fs::path& folder);
/// Deletes all but the newest `num_kept` complete ones; which were deleted, newest first. Where none is
/// complete it deletes nothing.
std::vector<CheckpointInfo> prune_checkpoints(const fs::path& folder, int64_t num_kept);

/// Why the folder is no complete checkpoint, or nothing; UserError when it cannot be read.
std::optional<std::string> check_checkpoint(const fs::path& path);

CheckpointContents read_checkpoint(const fs::path& path);

/// Returns the state JSON of a complete checkpoint, without reading its memory image.
std::string read_state(const fs::path& path);

/// What a checkpoint's manifest says: its step, and size and XXH3 of both parts (JSON).
std::string make_manifest(int64_t step, std::span<const std::byte> memory, std::string_view state);
/// Why these are not a manifest's parts, or nothing.
std::optional<std::string> check_parts(const std::string& manifest, std::span<const std::byte> memory,
                                       std::string_view state);

}  // namespace hearth::io
