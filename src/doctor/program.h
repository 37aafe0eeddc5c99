#pragma once

#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "base/isolated.h"

namespace hearth::doctor {

/// What this program brings, and the GPUs that the vendors' runtimes show it. The GPUs cannot be opened:
/// their drivers are another process's.
struct Program {
  std::vector<gpu::Runtime> runtimes;
  std::vector<gpu::DeviceInfo> devices;
  std::string fault;  ///< what became of the runtimes that were asked; empty: they answered
};

/// Asks the runtimes in a process of its own, since that of a GPU that failed may never return.
Program own_program();
/// The same of what answers as that process does, within so many seconds.
Program read_program(Isolated& process, double seconds);

}  // namespace hearth::doctor
