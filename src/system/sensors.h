#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "system/gpu_reading.h"
#include "system/nvml.h"

namespace hearth::system {

/// Sources of readings, in the order in which they are read. Each can be disabled separately. A value is
/// taken from the first source that has it.
enum class Sensor : uint8_t {
  busy,
  edge,
  junction,
  memory,
  power,
  clocks,
  fan,
  memory_use,
  link,
  ecc,
  gpu_metrics,
  nvml
};
/// Names of the sensors in messages, in the order of Sensor.
inline constexpr std::array<const char*, 12> kSensorNames = {"the utilization",
                                                             "the edge temperature",
                                                             "the junction temperature",
                                                             "the memory temperature",
                                                             "the power",
                                                             "the clocks",
                                                             "the fan's speed",
                                                             "the memory in use",
                                                             "the PCIe error counts",
                                                             "the ECC counts",
                                                             "gpu_metrics",
                                                             "NVML"};
inline constexpr size_t kNumSensors = kSensorNames.size();
/// Returns the bit of a sensor in a set.
constexpr uint32_t bit(Sensor sensor) { return uint32_t{1} << static_cast<uint32_t>(sensor); }

/// Readings of one GPU at one moment. Trivially copyable.
struct GpuSample {
  GpuReading reading;
  /// For each sensor, an impossible value that it returned and that was removed from the reading; NaN: none.
  std::array<float, kNumSensors> impossible_values;
};

/// Reads the sensors of GPUs: hwmon files by their labels, other files of the PCI device below `root` (kernel
/// documentation: gpu/amdgpu/thermal, PCI/pcieaer-howto), and NVML. Reading may block in a driver, so this
/// class should be used in a separate process.
class Sensors {
 public:
  /// `nvml`: name of the NVML library.
  Sensors(fs::path root, std::span<const std::string> pci_addresses, std::string nvml);

  using Before = std::function<void(size_t gpu, Sensor sensor)>;
  /// Reads a sample of each GPU. `left_out`: for each GPU, the set of disabled sensors (see bit()), which are
  /// not accessed. `before` is called before each access with GPU and sensor.
  std::vector<GpuSample> read(std::span<const uint32_t> left_out, const Before& before);

 private:
  struct Gpu {
    std::string address;
    fs::path device, hwmon;
    /// Hwmon numbers of the temperatures edge, junction and memory; 0: none.
    std::array<int, 3> temperatures{};
    bool amd = false, nvidia = false;
  };
  static Gpu find(const fs::path& root, const std::string& address);
  GpuReading read_sensor(const Gpu& gpu, Sensor sensor);

  std::vector<Gpu> gpus_;
  std::string nvml_library_;
  std::optional<Nvml> nvml_;
};

/// Sets impossible values in the readings of one sensor to unknown, and returns the first of them; NaN if
/// there is none. Impossible are temperatures below -20 C, above 130 C, or of exactly 0 or 127 C, which a
/// stuck bus returns; power above 2 kW; and zero power while the GPU is always busy.
float take_impossible_value(GpuReading& reading, float busy);

}  // namespace hearth::system
