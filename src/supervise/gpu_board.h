#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/shared_memory.h"
#include "system/gpu_reading.h"

namespace hearth::supervise {

/// GPU readings and the governor's decision at one moment. Plain bytes in shared memory.
struct GpuState {
  static constexpr size_t kMaxGpus = 64;

  int64_t number = 0;  ///< number of the sample, from 1; 0: none
  /// Fraction of time to keep the GPUs idle; see Governor::idle_share
  double idle_share = 0;
  bool paused = false;
  std::array<char, 160> reason{};  ///< cause of the idle share; see Governor::reason
  uint32_t num_gpus = 0;
  std::array<system::GpuReading, kMaxGpus> readings;  ///< indexed by the rank of the GPU's worker

  std::span<const system::GpuReading> gpus() const { return {readings.data(), num_gpus}; }
};

/// Shared memory in which workers register their GPUs and the supervisor publishes readings. Processes forked
/// after its construction share it. Lock-free: a version counter (seqlock) makes readers retry during a
/// write.
class GpuBoard {
 public:
  GpuBoard();

  /// Called by a worker: registers the PCI address of its GPU.
  void use(int rank, std::string_view pci_address) const;
  /// Called by rank 0: publishes the seconds per step.
  void set_period(double seconds) const;
  /// Returns a consistent copy of the last published state.
  GpuState read() const;
  double idle_share() const;
  bool paused() const;

  /// Called by the supervisor before it starts workers: removes all registrations.
  void clear() const;
  /// Returns the GPUs of the first `size` ranks; empty until each has registered.
  std::vector<std::string> used(int size) const;
  /// Returns the last period that rank 0 published, in seconds; 0 if there is none.
  double period() const;
  /// Called by the supervisor: publishes readings and decision.
  void publish(const GpuState& state) const;

 private:
  struct Memory;
  Memory& memory() const;

  distributed::SharedMemory bytes_;
};

}  // namespace hearth::supervise
