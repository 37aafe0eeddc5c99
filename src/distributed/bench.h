#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::distributed {

/// Sizes and wire dtype of a benchmark.
struct CommBenchOptions {
  int64_t min_bytes = 1024;
  int64_t max_bytes = int64_t{1} << 30;
  DType wire = DType::f32;
};

/// Median time of a collective. `num_bytes` is the size of a rank's full array: the input of all_reduce,
/// reduce_scatter and send, the output of all_gather.
struct CommTiming {
  std::string collective;
  int64_t num_bytes = 0;
  double seconds = 0;
  double bytes_per_second() const { return static_cast<double>(num_bytes) / seconds; }
  /// Returns the bytes per second that each rank must at least send and receive, for any algorithm (NCCL's
  /// "bus bandwidth").
  double bus_bytes_per_second(int num_ranks) const;
};

/// Rates measured by a benchmark.
struct CommBenchResult {
  /// Rate at which each rank copies one of its arrays to another, outside the caches, all ranks at once.
  double copy_bytes_per_second = 0;
  std::vector<CommTiming> timings;
};

/// Measures host collectives at sizes that grow by a factor of 4. Collective call. Throws UserError if the
/// group fails its test (distributed/probe.h).
CommBenchResult bench_group(ProcessGroup& group, const CommBenchOptions& options);
/// Measures shared memory, between this process and `num_ranks` - 1 forked ones; the caller must be
/// single-threaded.
CommBenchResult bench_shm(int num_ranks, const CommBenchOptions& options);
/// Measures NCCL or RCCL with one GPU per rank; the copy is from GPU to host. Throws UserError if the group
/// fails its test (distributed/nccl/nccl.h) or there are too few GPUs.
CommBenchResult bench_nccl(std::span<const gpu::DeviceInfo> gpus, int num_ranks,
                           const CommBenchOptions& options);

}  // namespace hearth::distributed
