#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/shared_memory.h"
#include "system/gpu_reading.h"

namespace hearth::supervise {

/// GPU readings, and the governor's decision based on them. Contains no pointers, because it is stored in
/// shared memory.
struct GpuState {
  static constexpr size_t kMaxGpus = 64;

  int64_t number = 0;  ///< number of the sensor sample, from 1; 0: no sample yet
  /// Fraction of time for which GPUs are kept idle (Governor::idle_share).
  double idle_share = 0;
  bool paused = false;
  std::array<char, 160> reason{};  ///< cause of the idle share (Governor::reason)
  uint32_t num_gpus = 0;
  std::array<system::GpuReading, kMaxGpus> readings;  ///< for each rank, the reading of its worker's GPU

  std::span<const system::GpuReading> gpus() const { return {readings.data(), num_gpus}; }
};

/// Shared memory in which workers register their GPUs, and the supervisor publishes sensor readings. Shared
/// with the processes that are forked after its construction. Lock-free: readers check a version counter
/// (seqlock) and read again if the state was written in between.
class GpuBoard {
 public:
  GpuBoard();

  /// Called by a worker: registers the PCI address of its GPU.
  void use(int rank, std::string_view pci_address) const;
  /// Called by rank 0: publishes the time per training step.
  void set_period(double seconds) const;
  /// Returns a consistent copy of the state that was published last.
  GpuState read() const;
  double idle_share() const;
  bool paused() const;

  /// Called by the supervisor before it starts workers: removes all registrations.
  void clear() const;
  /// Returns the PCI addresses of the GPUs of ranks 0 to `size` - 1; empty until all of these ranks have
  /// registered.
  std::vector<std::string> used(int size) const;
  /// Returns the time per training step that rank 0 published last; 0 if it has not published any.
  double period() const;
  /// Called by the supervisor: publishes readings and decision.
  void publish(const GpuState& state) const;

 private:
  struct Memory;
  Memory& memory() const;

  distributed::SharedMemory bytes_;
};

}  // namespace hearth::supervise
