#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "system/gpu_reading.h"

namespace hearth::system {

/// Parses AMD's sysfs file gpu_metrics, which contains a C structure of the kernel (kgd_pp_interface.h).
/// Reads temperatures, power, clocks, fan, utilization, throttle reasons and PCIe replays; values that the
/// version lacks stay unknown. Versions 1.0 to 1.8 are of discrete GPUs, 2.0 to 2.4 and 3.0 of integrated
/// ones. Returns nullopt if the version is unknown or the file is too short.
std::optional<GpuReading> parse_gpu_metrics(std::string_view bytes);

}  // namespace hearth::system
