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

/// A source of values, in the order in which they are read; each may be left out alone. What one says is
/// kept where those before it did not say it.
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
inline constexpr std::array<const char*, 12> kSensorNames = {"the share of busy time",
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
constexpr uint32_t bit(Sensor sensor) { return uint32_t{1} << static_cast<uint32_t>(sensor); }

/// The sensors of a GPU at one moment, plain bytes.
struct GpuSample {
  GpuReading reading;
  /// For each sensor a value of it that cannot be, which is not in the reading; NaN: none.
  std::array<float, kNumSensors> lies;
};

/// Reads the sensors of GPUs: hwmon by label and the other files of their PCI devices below `root` (docs of
/// the kernel: gpu/amdgpu/thermal, PCI/pcieaer-howto), and NVML. Reading may take as long as drivers like: it
/// belongs into a process of its own.
class Sensors {
 public:
  /// `nvml`: its library.
  Sensors(fs::path root, std::span<const std::string> pci_addresses, std::string nvml);

  using Before = std::function<void(size_t gpu, Sensor sensor)>;
  /// A sample for each GPU. `left_out`: a set of bit() for each, of sensors that are not touched; `before` is
  /// called before each that is.
  std::vector<GpuSample> read(std::span<const uint32_t> left_out, const Before& before);

 private:
  struct Gpu {
    std::string address;
    fs::path device, hwmon;
    std::array<int, 3> temperatures{};  ///< numbers of edge, junction and memory in hwmon; 0: it has none
    bool amd = false, nvidia = false;
  };
  static Gpu find(const fs::path& root, const std::string& address);
  GpuReading read_sensor(const Gpu& gpu, Sensor sensor);

  std::vector<Gpu> gpus_;
  std::string nvml_library_;
  std::optional<Nvml> nvml_;
};

/// The first value that no GPU has, of what one sensor says: temperatures below -20 or above 130 C, 0, or 127
/// and 255, which a stuck bus reads; powers above 2 kW, or none while the GPU is busy all of the time. NaN:
/// none. It and its like are unknown then.
float take_lie(GpuReading& reading, float busy);

}  // namespace hearth::system
