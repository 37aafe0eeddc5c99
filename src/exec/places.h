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

/// Addresses of a program's memory and the queues it runs on. With Backend::gpu, persistent and arena are on
/// the GPU.
struct Bindings {
  std::byte* persistent = nullptr;
  std::byte* arena = nullptr;  ///< Program::arena_bytes() bytes
  std::byte* host = nullptr;   ///< ArenaReport::host_bytes bytes

  // Backend::gpu only.
  /// the host's image of the layout: weights and states that stay on the host
  std::byte* host_persistent = nullptr;
  Staging* staging = nullptr;  ///< halves of Program::staging_bytes, for inputs and scalars
  std::array<gpu::Stream*, kNumQueues> queues = {};
  std::span<const DevicePiece> pieces;  ///< ranges of the layout on the device
  Recorder* recorder = nullptr;         ///< null: recording is off
};

}  // namespace hearth::exec
