#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::distributed {

/// Array sizes and dtype on the wire for a benchmark of collectives.
struct CommBenchOptions {
  int64_t min_bytes = 1024;
  int64_t max_bytes = int64_t{1} << 30;
  DType wire = DType::f32;
};

/// Median time of one collective. `num_bytes` is the size of the full array on each rank: the input of
/// all_reduce, reduce_scatter and send, the output of all_gather.
struct CommTiming {
  std::string collective;
  int64_t num_bytes = 0;
  double seconds = 0;
  double bytes_per_second() const { return static_cast<double>(num_bytes) / seconds; }
  /// Returns the "bus bandwidth" as NCCL defines it: the bytes that each rank must send and receive with an
  /// optimal algorithm, per second.
  double bus_bytes_per_second(int num_ranks) const;
};

/// Result of a benchmark of collectives.
struct CommBenchResult {
  /// Rate at which each rank copies one array to another, larger than the caches, while all ranks do so.
  double copy_bytes_per_second = 0;
  std::vector<CommTiming> timings;
};

/// Measures collectives on host memory; sizes grow by a factor of 4. Collective call. Throws UserError if the
/// group fails its test (distributed/probe.h).
CommBenchResult bench_group(ProcessGroup& group, const CommBenchOptions& options);
/// Measures collectives over shared memory, between this process and `num_ranks` - 1 forked processes. The
/// caller must be single-threaded.
CommBenchResult bench_shm(int num_ranks, const CommBenchOptions& options);
/// Measures collectives of NCCL or RCCL, with one GPU per rank. The copy rate is from GPU to host. Throws
/// UserError if the group fails its test (distributed/nccl/nccl.h) or there are too few GPUs.
CommBenchResult bench_nccl(std::span<const gpu::DeviceInfo> gpus, int num_ranks,
                           const CommBenchOptions& options);

}  // namespace hearth::distributed
