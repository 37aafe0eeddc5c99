#pragma once

#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "base/isolated.h"

namespace hearth::doctor {

/// The runtime modules of this program and the GPUs that they list. The GPUs cannot be opened here: their
/// drivers were loaded in another process.
struct Program {
  std::vector<gpu::Runtime> runtimes;
  std::vector<gpu::DeviceInfo> devices;
  std::string fault;  ///< why the runtimes did not answer; empty if they did
};

/// Queries the runtimes in a separate process, since a call to a failed GPU may never return.
Program query_program();
/// Reads the answer of a process that runs the query, with a timeout in seconds.
Program read_program(IsolatedProcess& process, double seconds);

}  // namespace hearth::doctor
