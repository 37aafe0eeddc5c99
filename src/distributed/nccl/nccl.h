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
  std::string fault;                    ///< the failure, with the same text on every rank
};
/// Loads NCCL or RCCL on every rank of `host`, creates a group with Capability::device_memory that forwards
/// host collectives to `host`, and tests it on known numbers, small arrays and large ones. If any step fails
/// or times out on any rank, no rank gets a group, and collectives in flight are aborted. Collective call.
/// `host` must outlive the group. The group's destructor waits for the other ranks, except during stack
/// unwinding, when they may never get there.
OpenedNccl open_nccl(ProcessGroup& host, const gpu::DeviceInfo& gpu, double deadline_seconds = 30);

}  // namespace hearth::distributed
