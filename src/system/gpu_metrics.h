#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "system/gpu_reading.h"

namespace hearth::system {

/// What AMD's file gpu_metrics holds, a C structure of the kernel (kgd_pp_interface.h: versions 1.0 to 1.8 of
/// discrete GPUs, 2.0 to 2.4 and 3.0 of integrated ones): the temperatures, power, clocks, fan, activity,
/// throttle reasons and PCIe replays that its version has; the rest stays unknown. Nothing of an unknown
/// version, or of bytes that are too few for theirs.
std::optional<GpuReading> parse_gpu_metrics(std::string_view bytes);

}  // namespace hearth::system
