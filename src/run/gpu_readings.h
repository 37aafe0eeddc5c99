#pragma once

#include <array>
#include <string>

#include "supervise/gpu_board.h"

namespace hearth::run {

struct GpuQuantity {
  const char* name;
  float system::GpuReading::*value;  ///< member with the reading; not finite if the GPU has no such sensor
};
/// Sensors of a GPU by name. The names are keys in the JSON log and tags in TensorBoard.
inline constexpr auto kGpuQuantities =
    std::to_array<GpuQuantity>({{"edge_c", &system::GpuReading::edge},
                                {"junction_c", &system::GpuReading::junction},
                                {"memory_c", &system::GpuReading::memory},
                                {"power_w", &system::GpuReading::power},
                                {"power_limit_w", &system::GpuReading::power_limit},
                                {"clock_mhz", &system::GpuReading::clock},
                                {"memory_clock_mhz", &system::GpuReading::memory_clock},
                                {"fan_rpm", &system::GpuReading::fan},
                                {"fan_percent", &system::GpuReading::fan_percent},
                                {"busy_percent", &system::GpuReading::busy}});

/// Returns the readings of the hottest GPU as short text; empty if there are no readings.
std::string gpu_text(const supervise::GpuState& state);

}  // namespace hearth::run
