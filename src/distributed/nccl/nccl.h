#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::distributed {

struct OpenedNccl {
  std::shared_ptr<ProcessGroup> group;  ///< null where there is a fault
  std::string version;                  ///< "2.27.3"
  std::string fault;                    ///< a sentence, the same on every rank
};
/// Loads NCCL or RCCL on every rank of `host`, makes a group with Capability::device_memory of them, which
/// does all else as `host`, and lets it sum and copy known numbers, small arrays and large ones. Where any of
/// that fails on any rank, or takes longer than the deadline, no rank has a group, and what was under way is
/// aborted. Every rank calls it, with its GPU. `host` outlives the
/// group, whose end waits for the other ranks' ends; while an exception unwinds it does not, for the others
/// do not end.
OpenedNccl open_nccl(ProcessGroup& host, const gpu::DeviceInfo& gpu, double deadline_seconds = 30);

}  // namespace hearth::distributed
