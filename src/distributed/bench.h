#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::distributed {

struct CommBenchOptions {
  int64_t least_bytes = 1024;
  int64_t most_bytes = int64_t{1} << 30;
  DType wire = DType::f32;
};

/// What a collective on that many bytes took, in the middle of several tries. A rank's whole array counts:
/// the input of all_reduce, reduce_scatter and send, the output of all_gather.
struct CommTiming {
  std::string collective;
  int64_t num_bytes = 0;
  double seconds = 0;
  double bytes_per_second() const { return static_cast<double>(num_bytes) / seconds; }
  /// What each rank has to send and to receive whatever the way (NCCL's "bus bandwidth").
  double bus_bytes_per_second(int num_ranks) const;
};

struct CommBenchResult {
  /// Bytes that each rank copies from one of its arrays to another, all at once, outside the caches.
  double copy_bytes_per_second = 0;
  std::vector<CommTiming> timings;
};

/// Sizes go up by 4. Every rank of the group calls it. UserError where the group cannot add up or copy known
/// numbers (distributed/probe.h).
CommBenchResult bench_group(ProcessGroup& group, const CommBenchOptions& options);
/// Of shared memory, between this process and `num_ranks` - 1 that it forks; it may have one thread alone.
CommBenchResult bench_shm(int num_ranks, const CommBenchOptions& options);
/// The same of NCCL or RCCL, with one of the GPUs and its memory for each; what is copied goes from GPU to
/// host. UserError where it cannot be trusted (distributed/nccl/nccl.h) or there are too few GPUs.
CommBenchResult bench_nccl(std::span<const gpu::DeviceInfo> gpus, int num_ranks,
                           const CommBenchOptions& options);

}  // namespace hearth::distributed
