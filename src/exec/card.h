#pragma once

#include "backend/gpu/device.h"
#include "exec/program.h"

namespace hearth::exec {

/// An open card and what the programs of an engine share on it, in one allocation.
class Card {
 public:
  explicit Card(int index) : device_(index), stream_(device_) {}

  /// UserError, with what is missing, where that is more than the card has free.
  void allocate(int64_t persistent_bytes, int64_t arena_bytes, int64_t staging_bytes);
  Places places();
  /// The same for a program with an arena and staged inputs of its own, behind one another in `room`.
  Places places_in(const gpu::Memory& room, const Program& program);

  /// Copies weights and state from or to the host, and waits.
  void upload(const std::byte* persistent);
  void download(std::byte* persistent);
  gpu::Device& device() { return device_; }

 private:
  gpu::Device device_;
  gpu::Stream stream_;
  std::unique_ptr<gpu::Memory> memory_;
  int64_t persistent_bytes_ = 0;
  int64_t arena_bytes_ = 0;
};

}  // namespace hearth::exec
