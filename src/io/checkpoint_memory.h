#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// A checkpoint that an earlier process saved in shared memory. `memory` is a view of `file`, which maps the
/// memfd.
struct MemoryCheckpoint {
  int64_t step = 0;
  std::span<const std::byte> memory;
  std::string state;
  MappedFile file;
};

/// Two checkpoints (snapshots) in shared memory that outlives the process that writes them: a memfd, which
/// forked processes inherit and which is freed when the last of them ends. Saves alternate between two slots,
/// so one slot is always complete even if the writer dies. Each slot also has the manifest of the checkpoint
/// (make_manifest()), to verify it.
class CheckpointMemory {
 public:
  /// Creates the memfd without allocating memory.
  CheckpointMemory();
  ~CheckpointMemory();
  CheckpointMemory(const CheckpointMemory&) = delete;
  CheckpointMemory& operator=(const CheckpointMemory&) = delete;

  /// Sets the size of both slots for checkpoints of `memory_bytes` each, if the additional memory is at most
  /// half of `free_bytes`. Keeps the contents if the size is unchanged. Returns false if there is not enough
  /// memory or memfd is not available.
  bool make_room(int64_t memory_bytes, int64_t free_bytes) const;
  /// Returns the number of bytes of memory that the slots occupy.
  int64_t num_bytes() const;
  /// Saves a snapshot in the slot of the older one. `run`: name of the run, which find_newest() must pass
  /// too. Clears slots with later steps, since the run was rolled back. Returns false if the system refuses
  /// the memory; only the older snapshot is lost then. Allows one writer at a time, and none while another
  /// process reads.
  bool save(std::string_view run, int64_t step, std::span<const std::byte> memory,
            std::string_view state) const;
  /// Returns the newest complete snapshot of `run`, or nothing. If `refused` is not null, appends the reason
  /// why each other one was skipped.
  std::optional<MemoryCheckpoint> find_newest(std::string_view run, std::vector<std::string>* refused) const;

 private:
  struct Head;
  int64_t slot_bytes() const;
  Head head(int slot) const;
  bool write(int64_t offset, const void* data, size_t num_bytes) const;
  void clear(int slot) const;
  void discard_later(int64_t step) const;

  int file_;
};

}  // namespace hearth::io
