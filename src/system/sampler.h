#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/isolated.h"
#include "distributed/shared_memory.h"
#include "system/sensors.h"

namespace hearth::system {

struct SamplerOptions {
  fs::path root = "/";  ///< tests plant machines
  std::string nvml = Nvml::kLibrary;
  double seconds = 1;           ///< between samples
  double patience_seconds = 3;  ///< for one; the sensor that takes longer is left out
};

/// Reads the sensors of GPUs once a second in a process of its own, for a process that must never wait. A
/// sensor that hangs, takes that process with it, or says what cannot be several times in a row, is left out
/// from then on and named; the others go on.
class Sampler {
 public:
  /// `say` takes sentences for people: what is left out, and errors that grow.
  Sampler(SamplerOptions options, std::function<void(const std::string&)> say);

  /// These GPUs from now on. Nothing is started where they are what they were.
  void watch(const std::vector<std::string>& pci_addresses);
  /// Returns at once; true where readings() are new.
  bool look();
  /// The newest, one for each GPU that is watched; empty before the first.
  std::span<const GpuReading> readings() const { return readings_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// What the other process is about to read.
  struct Mark;
  struct Gpu {
    std::string address;
    std::array<int, kNumSensors> num_lies{};  ///< in a row
    int64_t first_pcie_errors = -1, first_memory_errors = -1;
    int64_t said_pcie_errors = 0, said_memory_errors = 0;
  };
  Mark& mark() const;
  std::string answer(std::string_view request);
  void start();
  void take();
  void note_lost();
  void give_up(const std::string& why);
  void leave_out(size_t gpu, Sensor sensor, const std::string& why);
  void judge(size_t gpu, const GpuSample& sample);

  SamplerOptions options_;
  std::function<void(const std::string&)> say_;
  std::vector<Gpu> gpus_;
  std::vector<uint32_t> left_out_;  ///< of each GPU, a set of bit()
  std::vector<GpuReading> readings_;
  distributed::SharedMemory mark_;
  std::optional<Sensors> sensors_;  ///< of the other process
  std::unique_ptr<Isolated> process_;
  Clock::time_point next_;
  bool gave_up_ = false;
};

}  // namespace hearth::system
