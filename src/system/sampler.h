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

/// Options of a Sampler.
struct SamplerOptions {
  fs::path root = "/";  ///< root of the file system; replaced in tests
  std::string nvml = Nvml::kLibrary;
  double seconds = 1;  ///< interval between samples
  double timeout_seconds =
      3;  ///< time limit for one sample, after which the sensor that is being read is disabled
};

/// Reads GPU sensors periodically in a separate process, so that the caller never blocks. A sensor that
/// hangs, crashes that process, or repeatedly returns impossible values is disabled and reported; all others
/// continue.
class Sampler {
 public:
  /// `say` receives messages for the user: disabled sensors and growing error counts.
  Sampler(SamplerOptions options, std::function<void(const std::string&)> say);

  /// Sets the GPUs to read. Does nothing if they are the same as before.
  void watch(const std::vector<std::string>& pci_addresses);
  /// Polls without blocking; returns true if readings() are new.
  bool look();
  /// Returns the latest readings, one for each watched GPU; empty before the first sample.
  std::span<const GpuReading> readings() const { return readings_; }

 private:
  using Clock = std::chrono::steady_clock;
  /// GPU and sensor that the reader process is reading, in shared memory.
  struct ReaderState;
  struct Gpu {
    std::string address;
    /// For each sensor, number of consecutive impossible values.
    std::array<int, kNumSensors> num_impossible{};
    int64_t first_pcie_errors = -1, first_memory_errors = -1;
    int64_t reported_pcie_errors = 0, reported_memory_errors = 0;
  };
  ReaderState& mark() const;
  std::string answer(std::string_view request);
  void start();
  void take();
  void handle_lost_reader();
  void give_up(const std::string& why);
  void disable(size_t gpu, Sensor sensor, const std::string& why);
  void judge(size_t gpu, const GpuSample& sample);

  SamplerOptions options_;
  std::function<void(const std::string&)> say_;
  std::vector<Gpu> gpus_;
  std::vector<uint32_t> disabled_sensors_;  ///< for each GPU, a set of sensors (see bit())
  std::vector<GpuReading> readings_;
  distributed::SharedMemory mark_;
  std::optional<Sensors> sensors_;  ///< used only in the reader process
  std::unique_ptr<IsolatedProcess> process_;
  Clock::time_point next_;
  bool gave_up_ = false;
};

}  // namespace hearth::system
