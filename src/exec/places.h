#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "exec/device/recorder.h"
#include "exec/memory.h"
#include "exec/waits.h"

namespace hearth::gpu {
class Stream;
}

namespace hearth::exec {

class Staging;

/// The memory of a program's regions, and what it runs on. With Backend::gpu the first two are a GPU's.
struct Places {
  std::byte* persistent = nullptr;
  std::byte* arena = nullptr;  ///< Program::arena_bytes()
  std::byte* host = nullptr;   ///< ArenaReport::host_bytes

  // Backend::gpu only.
  std::byte* host_persistent = nullptr;  ///< weights and states of the layout that are on the host
  Staging* staging = nullptr;            ///< halves of Program::staging_bytes: inputs and scalars
  std::array<gpu::Stream*, kNumQueues> queues = {};
  std::span<const DevicePiece> pieces;  ///< of the layout
  Recorder* recorder = nullptr;         ///< null: nothing is recorded
};

}  // namespace hearth::exec
