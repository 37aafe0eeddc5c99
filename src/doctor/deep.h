#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "system/machine.h"

namespace hearth::doctor {

/// Parameters of the deep tests.
struct DeepOptions {
  std::string device = "gpu";                   ///< GPUs to test: gpu or emulated
  double memory_seconds = 240;                  ///< time limit for testing the memory of one GPU
  double load_seconds = 120;                    ///< duration of the steady load
  int64_t max_memory_bytes = int64_t{1} << 50;  ///< max. bytes to test per GPU
  int max_kernels = 1 << 20;                    ///< max. number of kernels to test
};

/// A measured rate, and the rate that the GPU's cost model (cost/device.h) or its PCIe link predicts; 0:
/// unknown.
struct Figure {
  std::string gpu;   ///< PCI address
  std::string name;  ///< "matmul, bf16"
  double value = 0, predicted = 0;
  std::string unit;
};

/// Readings of one second of steady load.
struct LoadSample {
  double seconds = 0;    ///< time since the load began
  double teraflops = 0;  ///< measured matmul rate; 0: unknown
  std::optional<double> celsius, watts, megahertz;
};

/// Result of the deep tests.
struct DeepResult {
  std::vector<std::string> gpus;  ///< "0000:03:00.0: AMD Radeon RX 7900 XT"
  std::vector<Finding> findings;
  std::vector<Figure> figures;
  std::vector<std::vector<LoadSample>> load;  ///< for each GPU, its samples
};

/// Tests each GPU of this machine: every kernel against the definition of its op, all free memory by
/// patterns, copies in both directions, matmul and memory rates, steady load; then an all-reduce between
/// several GPUs. A separate process runs each GPU's tests, so that a hang can be attributed to a GPU. Call
/// this before this process opens a GPU. `say` receives progress messages.
DeepResult examine_deep(const system::Machine& machine, const DeepOptions& options,
                        const std::function<void(const std::string&)>& say);

}  // namespace hearth::doctor
