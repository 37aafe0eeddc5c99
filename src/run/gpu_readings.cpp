#include "run/gpu_readings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace hearth::run {

std::string gpu_text(const supervise::GpuState& state) {
  if (state.number == 0 || state.num_gpus == 0) return "";
  const auto gpus = state.gpus();
  const auto heat = [](const system::GpuReading& reading) {
    return std::isfinite(reading.hottest()) ? reading.hottest() : -INFINITY;
  };
  std::string text = system::short_text(*std::ranges::max_element(gpus, {}, heat));
  if (state.idle_share > 0) text += fmt::format(" idle {:.0f}%", 100 * state.idle_share);
  return text;
}

}  // namespace hearth::run
