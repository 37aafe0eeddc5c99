#pragma once

#include <array>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "distributed/shared_memory.h"
#include "system/gpu_reading.h"

namespace hearth::supervise {

/// What the supervisor knows of the GPUs at one moment, plain bytes.
struct GpuState {
  static constexpr size_t kMostGpus = 64;

  int64_t number = 0;  ///< of the sample, from 1 on; 0: there is none
  double idle_share = 0;
  bool paused = false;
  std::array<char, 160> reason{};  ///< why it slows: Governor::reason
  uint32_t num_gpus = 0;
  std::array<system::GpuReading, kMostGpus> readings;  ///< by the rank of their workers

  std::span<const system::GpuReading> gpus() const { return {readings.data(), num_gpus}; }
};

/// Memory in which workers name their GPUs, and the supervisor tells what these are at; shared with processes
/// that are forked once it is made.
class GpuBoard {
 public:
  GpuBoard();

  /// A worker's: the address on the PCI bus of its GPU.
  void use(int rank, std::string_view pci_address) const;
  /// The leader's: seconds from one step to the next.
  void tell_period(double seconds) const;
  GpuState read() const;
  double idle_share() const;
  bool paused() const;

  /// The supervisor's: before workers are started. They name their GPUs anew.
  void clear() const;
  /// The GPUs of the first `size` ranks; none before each has named its own.
  std::vector<std::string> used(int size) const;
  double period() const;
  void publish(const GpuState& state) const;

 private:
  struct Memory;
  Memory& memory() const;

  distributed::SharedMemory bytes_;
};

}  // namespace hearth::supervise
