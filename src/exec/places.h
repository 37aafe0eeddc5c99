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

/// Addresses of a program's memory, and the queues it runs on. With Backend::gpu, `persistent` and `arena`
/// are on the GPU.
struct Bindings {
  std::byte* persistent = nullptr;
  std::byte* arena = nullptr;  ///< Program::arena_bytes() bytes
  std::byte* host = nullptr;   ///< offloaded activations; ArenaReport::host_bytes bytes

  // Backend::gpu only.
  // Address of the persistent region's image in host memory, which has the weights and states that stay
  // there.
  std::byte* host_persistent = nullptr;
  Staging* staging = nullptr;  ///< buffer for inputs and scalars; each half has Program::staging_bytes bytes
  std::array<gpu::Stream*, kNumQueues> queues = {};
  std::span<const DevicePiece> pieces;  ///< ranges of the persistent region that are on the device
  Recorder* recorder = nullptr;         ///< recording mode; null: never record
};

}  // namespace hearth::exec
