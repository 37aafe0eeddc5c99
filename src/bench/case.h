#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/open_workload.h"

namespace hearth::bench {

/// The case of that name, simplecnn-b32-fp32 and so on; UserError with the nearest name otherwise.
const BenchCase& find_bench_case(std::string_view name);

/// The GPU that a case ran on.
struct BenchGpu {
  std::string name;
  std::string driver;
  int64_t num_bytes = 0;             ///< everything that was allocated there
  double peak_flops_per_second = 0;  ///< by its vendor, in the case's precision; 0: not known
};

struct BenchResult {
  std::vector<double> step_seconds;
  int num_workers = 1;
  std::vector<double> exchange_seconds;  ///< of each step, where there are several workers
  double first_step_seconds = 0;         ///< from the start of the process
  int64_t peak_rss_bytes = 0;
  double flops_per_step = 0;
  int64_t samples_per_step = 0;  ///< images or tokens
  double gemm_peak_gflops = 0;   ///< the processor's; 0 where a GPU did the work
  std::optional<BenchGpu> gpu;
  /// A table of the step's seconds by op and shape, the longest first; on request.
  std::string profile;
};

/// Runs the case `num_steps` times after a warm-up of three (tiny: one).
BenchResult run_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine,
                      bool profile = false);

/// Training by `num_workers` processes of this machine, a micro-batch each, as its first one sees it.
BenchResult run_group_bench(const BenchCase& bench, int64_t num_steps, const BenchMachine& machine,
                            int num_workers);

/// One line of JSON.
std::string to_json(const BenchCase& bench, const BenchResult& result);
/// What a GPU did, for people: milliseconds, images or tokens (of a kernel, GFLOP) a second, MFU, memory.
/// Empty where it was the processor.
std::string to_line(const BenchCase& bench, const BenchResult& result);

}  // namespace hearth::bench
