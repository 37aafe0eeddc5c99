#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "system/gpu_reading.h"

namespace hearth::system {

/// Parses AMD's sysfs file gpu_metrics, a C structure of the kernel (kgd_pp_interface.h): versions 1.0 to 1.8
/// of discrete GPUs, 2.0 to 2.4 and 3.0 of integrated ones. Fields that the version lacks stay unknown:
/// temperatures, power, clocks, fan, activity, throttle reasons, PCIe replays. nullopt if the version is
/// unknown or the file too short.
std::optional<GpuReading> parse_gpu_metrics(std::string_view bytes);

}  // namespace hearth::system
