#pragma once

#include <vector>

#include "backend/gpu/device.h"
#include "doctor/finding.h"
#include "system/machine.h"

namespace hearth::doctor {

/// What this program brings, and the GPUs that the vendors' runtimes show it.
struct Program {
  std::vector<gpu::Runtime> runtimes;
  std::vector<gpu::DeviceInfo> devices;
};
Program own_program();

/// Everything that decides whether a machine can train, best news first within each check. `program`: null
/// where the machine is not this one, so that nothing can be asked but its files.
std::vector<Finding> examine(const system::Machine& machine, const Program* program);

}  // namespace hearth::doctor
