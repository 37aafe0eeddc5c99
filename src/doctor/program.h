#pragma once

#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "base/isolated.h"

namespace hearth::doctor {

/// The runtime modules of this program and the GPUs that they list. The GPUs were listed by another process
/// and cannot be opened through this list.
struct Program {
  std::vector<gpu::Runtime> runtimes;
  std::vector<gpu::DeviceInfo> devices;
  std::string fault;  ///< why the runtimes could not be queried; empty if they were
};

/// Queries the runtimes in a separate process, because a call to a failed GPU may never return.
Program query_program();
/// Reads the reply of the process that queries the runtimes. `seconds`: timeout.
Program read_program(IsolatedProcess& process, double seconds);

}  // namespace hearth::doctor
