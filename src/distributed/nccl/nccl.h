#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::distributed {

/// Result of open_nccl().
struct OpenedNccl {
  std::shared_ptr<ProcessGroup> group;  ///< null if there is a fault
  std::string version;                  ///< version of the library: "2.27.3"
  std::string fault;  ///< description of the failure, the same on every rank; empty if there is none
};
/// Loads NCCL or RCCL on every rank of `host`, creates a group of GPUs, and tests it on small and large
/// arrays of known numbers. The group has Capability::device_memory and forwards collectives on host memory
/// to `host`, which must outlive it. If any step fails or times out on any rank, no rank gets a group, and
/// collectives in flight are aborted. Collective call. The group's destructor waits for the other ranks,
/// except during stack unwinding, when the others may never reach it.
OpenedNccl open_nccl(ProcessGroup& host, const gpu::DeviceInfo& gpu, double deadline_seconds = 30);

}  // namespace hearth::distributed
