#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/open_workload.h"

namespace hearth::bench {

/// Returns a case by name, such as simplecnn-b32-fp32. Throws a UserError with the most similar name if there
/// is none.
const BenchCase& find_bench_case(std::string_view name);

/// The GPU on which a case ran.
struct BenchGpu {
  std::string name;
  std::string driver;
  int64_t num_bytes = 0;             ///< total bytes allocated on the GPU
  double peak_flops_per_second = 0;  ///< vendor's peak rate in the case's precision; 0: unknown
};

/// Measurements of a case.
struct BenchResult {
  std::vector<double> step_seconds;
  int num_workers = 1;
  /// Seconds of each step spent in collectives; only with several workers.
  std::vector<double> exchange_seconds;
  double first_step_seconds = 0;  ///< time from the start of the process to the end of the first step
  int64_t peak_rss_bytes = 0;
  double flops_per_step = 0;
  int64_t samples_per_step = 0;  ///< images or tokens per step
  double gemm_peak_gflops = 0;   ///< f32 matmul rate of the CPU in GFLOP/s; 0 if a GPU ran the case
  std::optional<BenchGpu> gpu;
  /// Table of a step's seconds by op and shape, longest first; empty unless requested.
  std::string profile;
};

/// Runs a case `num_steps` times after warm-up (3 steps; 1 for tiny cases). `profile`: also fills
/// BenchResult::profile.
BenchResult run_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine,
                      bool profile = false);

/// Trains with `num_workers` processes on this machine, one micro-batch each. Returns the result of rank 0.
BenchResult run_group_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine,
                            int num_workers);

/// Formats the result as one line of JSON.
std::string to_json(const BenchCase& bench, const BenchResult& result);
/// Formats the result of a GPU as one line: milliseconds, images or tokens per second (kernels: GFLOP/s),
/// MFU, memory. Empty if the CPU ran the case.
std::string to_line(const BenchCase& bench, const BenchResult& result);

}  // namespace hearth::bench
