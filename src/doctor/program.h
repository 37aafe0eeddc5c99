#pragma once

#include <vector>

#include "backend/gpu/device.h"

namespace hearth::doctor {

/// What this program brings, and the GPUs that the vendors' runtimes show it.
struct Program {
  std::vector<gpu::Runtime> runtimes;
  std::vector<gpu::DeviceInfo> devices;
};
Program own_program();

}  // namespace hearth::doctor
