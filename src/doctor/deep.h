#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "system/machine.h"

namespace hearth::doctor {

struct DeepOptions {
  std::string device = "gpu";              ///< whose GPUs are tested: gpu or emulated
  double memory_seconds = 240;             ///< most for the memory of one GPU
  double load_seconds = 120;               ///< of steady load
  int64_t most_memory = int64_t{1} << 50;  ///< bytes of a GPU that are tested
  int most_kernels = 1 << 20;              ///< that are tried
};

/// What was measured on a GPU, beside what its model (cost/device.h) or its link promises; 0: not known.
struct Figure {
  std::string gpu;   ///< its address
  std::string name;  ///< "matmul, bf16"
  double value = 0, promised = 0;
  std::string unit;
};

/// One second of steady load.
struct LoadSample {
  double seconds = 0;    ///< since it began
  double teraflops = 0;  ///< 0: not known
  std::optional<double> celsius, watts, megahertz;
};

struct DeepResult {
  std::vector<std::string> gpus;  ///< "0000:03:00.0: AMD Radeon RX 7900 XT"
  std::vector<Finding> findings;
  std::vector<Figure> figures;
  std::vector<std::vector<LoadSample>> load;  ///< of each GPU
};

/// Tests every GPU of this machine: each kernel against its op's definition, all free memory with patterns,
/// copies both ways, matmuls and memory rates, steady load, and sums between several GPUs. A GPU is tested in
/// a process of its own, so that one that hangs is named. Call it before this process opens a GPU. `say`
/// takes sentences on what is being done.
DeepResult examine_deep(const system::Machine& machine, const DeepOptions& options,
                        const std::function<void(const std::string&)>& say);

}  // namespace hearth::doctor
