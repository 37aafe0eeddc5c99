#pragma once

#include <optional>
#include <string>

#include "base/shared_library.h"
#include "system/gpu_reading.h"

namespace hearth::system {

/// The part of NVIDIA's management library (NVML) that Hearth uses. The library comes with the driver and is
/// loaded at run time. Calls may block in the driver, so this class should be used in a separate process.
class Nvml {
 public:
  static constexpr const char* kLibrary = "libnvidia-ml.so.1";

  /// Loads and initializes NVML. operator bool returns true if that succeeded.
  explicit Nvml(const std::string& library = kLibrary);

  explicit operator bool() const { return fault_.empty(); }
  /// Reason why NVML is not available.
  const std::string& fault() const { return fault_; }
  /// Returns the readings of the GPU at the PCI address; its temperature is in `edge`. Values that the GPU or
  /// the library does not report stay unknown. nullopt if there is no such GPU.
  std::optional<GpuReading> read(const std::string& pci_address) const;

 private:
  struct Device;
  struct Memory {
    unsigned long long total, free, used;
  };
  struct Utilization {
    unsigned gpu, memory;
  };
  enum class Threshold : int { shutdown = 0, slowdown = 1, max_memory = 2, max_gpu = 3 };
  enum class Clock : int { graphics = 0, memory = 2 };

  void read_limits(Device* device, GpuReading& reading) const;
  void read_work(Device* device, GpuReading& reading) const;
  void read_errors(Device* device, GpuReading& reading) const;

  SharedLibrary library_;
  std::string fault_;
  // Functions of the library; null if it lacks them. Results are 0 or an error code.
  int (*init_)() = nullptr;
  const char* (*error_string_)(int result) = nullptr;
  int (*find_)(const char* pci_address, Device** device) = nullptr;
  int (*temperature_)(Device* device, int sensor, unsigned* celsius) = nullptr;
  int (*threshold_)(Device* device, Threshold threshold, unsigned* celsius) = nullptr;
  int (*power_)(Device* device, unsigned* milliwatts) = nullptr;
  int (*power_limit_)(Device* device, unsigned* milliwatts) = nullptr;
  int (*clock_)(Device* device, Clock clock, unsigned* megahertz) = nullptr;
  int (*throttle_)(Device* device, unsigned long long* reasons) = nullptr;
  int (*fan_)(Device* device, unsigned* percent) = nullptr;
  int (*memory_)(Device* device, Memory* memory) = nullptr;
  int (*utilization_)(Device* device, Utilization* utilization) = nullptr;
  int (*replays_)(Device* device, unsigned* count) = nullptr;
  int (*ecc_)(Device* device, int kind, int since, unsigned long long* count) = nullptr;
};

}  // namespace hearth::system
