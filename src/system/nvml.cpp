#include "system/nvml.h"

#include <fmt/format.h>

#include <algorithm>

namespace hearth::system {
namespace {

/// Bits of NVML's clock event reasons that count as throttling. Bits for an idle GPU, and for clocks set by
/// the user, are not included.
constexpr unsigned long long kNvmlPower = 0x4, kNvmlTemperature = 0x20 | 0x40, kNvmlExternal = 0x8 | 0x80;

/// Calls an NVML function and returns the value that it writes; nullopt if the library lacks the function, or
/// if it fails.
template <typename T, typename Function, typename... Arguments>
std::optional<T> ask(Function function, Arguments... arguments) {
  T value{};
  if (function == nullptr || function(arguments..., &value) != 0) return std::nullopt;
  return value;
}

void put(std::optional<unsigned> value, float scale, float& member) {
  if (value) member = scale * static_cast<float>(*value);
}

}  // namespace

Nvml::Nvml(const std::string& library) : library_({library}) {
  if (!library_) {
    fault_ = library_.fault();
    return;
  }
  const bool is_one = library_.find("nvmlInit_v2", init_) &&
                      library_.find("nvmlErrorString", error_string_) &&
                      library_.find("nvmlDeviceGetHandleByPciBusId_v2", find_);
  if (!is_one) {
    fault_ = fmt::format("{} lacks NVML functions", library_.file());
    return;
  }
  library_.find("nvmlDeviceGetTemperature", temperature_);
  library_.find("nvmlDeviceGetTemperatureThreshold", threshold_);
  library_.find("nvmlDeviceGetPowerUsage", power_);
  library_.find("nvmlDeviceGetEnforcedPowerLimit", power_limit_);
  library_.find("nvmlDeviceGetClockInfo", clock_);
  // Newer drivers have the function under the first name only, older ones under the second.
  if (!library_.find("nvmlDeviceGetCurrentClocksEventReasons", throttle_))
    library_.find("nvmlDeviceGetCurrentClocksThrottleReasons", throttle_);
  library_.find("nvmlDeviceGetFanSpeed", fan_);
  library_.find("nvmlDeviceGetMemoryInfo", memory_);
  library_.find("nvmlDeviceGetUtilizationRates", utilization_);
  library_.find("nvmlDeviceGetPcieReplayCounter", replays_);
  library_.find("nvmlDeviceGetTotalEccErrors", ecc_);
  if (const int result = init_(); result != 0) fault_ = error_string_(result);
}

std::optional<GpuReading> Nvml::read(const std::string& pci_address) const {
  Device* device = nullptr;
  if (!fault_.empty() || find_(pci_address.c_str(), &device) != 0) return std::nullopt;
  GpuReading reading{.address = gpu_address(pci_address)};
  constexpr int kGpuSensor = 0;
  put(ask<unsigned>(temperature_, device, kGpuSensor), 1, reading.edge);
  read_limits(device, reading);
  read_work(device, reading);
  read_errors(device, reading);
  return reading;
}

/// Reads the limits of temperature and power. The temperature limit is the lowest threshold at which the GPU
/// lowers its clocks.
void Nvml::read_limits(Device* device, GpuReading& reading) const {
  for (const Threshold threshold : {Threshold::slowdown, Threshold::max_gpu}) {
    const auto celsius = ask<unsigned>(threshold_, device, threshold);
    if (!celsius || *celsius == 0) continue;
    const auto limit = static_cast<float>(*celsius);
    reading.edge_limit = reading.edge_limit < limit ? reading.edge_limit : limit;
  }
  put(ask<unsigned>(power_limit_, device), 1e-3F, reading.power_limit);
}

void Nvml::read_work(Device* device, GpuReading& reading) const {
  put(ask<unsigned>(power_, device), 1e-3F, reading.power);
  put(ask<unsigned>(clock_, device, Clock::graphics), 1, reading.clock);
  put(ask<unsigned>(clock_, device, Clock::memory), 1, reading.memory_clock);
  put(ask<unsigned>(fan_, device), 1, reading.fan_percent);
  if (const auto use = ask<Utilization>(utilization_, device)) reading.busy = static_cast<float>(use->gpu);
  if (const auto memory = ask<Memory>(memory_, device)) {
    reading.memory_bytes = static_cast<int64_t>(memory->total);
    reading.memory_used_bytes = static_cast<int64_t>(memory->used);
  }
  const auto reasons = ask<unsigned long long>(throttle_, device).value_or(0);
  for (const auto& [bits, reason] :
       {std::pair(kNvmlPower, Throttle::power), std::pair(kNvmlTemperature, Throttle::temperature),
        std::pair(kNvmlExternal, Throttle::external)})
    if ((reasons & bits) != 0) reading.throttle |= static_cast<uint32_t>(reason);
}

void Nvml::read_errors(Device* device, GpuReading& reading) const {
  if (const auto replays = ask<unsigned>(replays_, device)) reading.pcie_errors = *replays;
  constexpr int kSinceStart = 0, kKinds = 2;
  for (int kind = 0; kind < kKinds; ++kind) {
    const auto count = ask<unsigned long long>(ecc_, device, kind, kSinceStart);
    if (count)
      reading.memory_errors = std::max<int64_t>(0, reading.memory_errors) + static_cast<int64_t>(*count);
  }
}

}  // namespace hearth::system
