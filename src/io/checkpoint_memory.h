#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"

namespace hearth::io {

/// A checkpoint that was found in memory: its parts lie in `file`.
struct MemoryCheckpoint {
  int64_t step = 0;
  std::span<const std::byte> memory;
  std::string state;
  MappedFile file;
};

/// Two checkpoints in memory that outlives the process which writes them: processes that are forked share it.
/// It has no name, and goes with the last of them. Saves take turns, so that one is whole whenever the writer
/// dies; each has the manifest that it would have on the disk (make_manifest).
class CheckpointMemory {
 public:
  /// Takes no memory yet.
  CheckpointMemory();
  ~CheckpointMemory();
  CheckpointMemory(const CheckpointMemory&) = delete;
  CheckpointMemory& operator=(const CheckpointMemory&) = delete;

  /// Prepares for checkpoints of `memory_bytes` each, if what two of them still need is at most half of
  /// `free_bytes`; what it holds of that size stays. False where it is more, or the system has no such
  /// memory.
  bool make_room(int64_t memory_bytes, int64_t free_bytes) const;
  /// Bytes of memory that it has taken.
  int64_t num_bytes() const;
  /// `run`: what find_newest() has to name. One of a later step is forgotten: the run has gone back. False,
  /// and nothing is lost but the older checkpoint, where the system refuses the memory. One writer at a time;
  /// none while another process reads.
  bool save(std::string_view run, int64_t step, std::span<const std::byte> memory,
            std::string_view state) const;
  /// The newest whole one of this run, and why others were passed over.
  std::optional<MemoryCheckpoint> find_newest(std::string_view run, std::vector<std::string>* refused) const;

 private:
  struct Head;
  int64_t slot_bytes() const;
  Head head(int slot) const;
  bool write(int64_t offset, const void* data, size_t num_bytes) const;
  void clear(int slot) const;
  void discard_behind(int64_t step) const;

  int file_;
};

}  // namespace hearth::io
