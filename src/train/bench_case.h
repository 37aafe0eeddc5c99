#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "train/bench_workload.h"

namespace hearth::train {

/// The case of that name, simplecnn-b32-fp32 and so on; UserError with the nearest name otherwise.
const BenchCase& find_bench_case(std::string_view name);

struct BenchResult {
  std::vector<double> step_seconds;
  double first_step_seconds = 0;  ///< from the start of the process
  int64_t peak_rss_bytes = 0;
  double flops_per_step = 0;
  double gemm_peak_gflops = 0;
  /// A table of the step's seconds by op and shape, the longest first; on request.
  std::string profile;
};

/// Runs the case `num_steps` times after a warm-up of three.
BenchResult run_bench(const BenchCase& bench, int64_t num_steps, int num_threads, bool profile = false);

/// One line of JSON.
std::string to_json(const BenchCase& bench, const BenchResult& result);

}  // namespace hearth::train
