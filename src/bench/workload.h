#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"
#include "engine/engine.h"

namespace hearth::bench {

/// Device and threads that run a case.
struct BenchMachine {
  int num_threads = 1;
  std::string device = "cpu";  ///< "cpu", or a GPU as in exec::GpuRequest
  /// Process group for data-parallel training, in which each rank trains one micro-batch per update; null:
  /// one process.
  distributed::ProcessGroup* group = nullptr;
};

/// Total of the nodes of a training step with the same op and result shape.
struct ProfileRow {
  std::string op;
  std::string shape;  ///< "[64, 288]"
  double seconds = 0, flops = 0;
  int count = 0;
};
/// Formats the rows as a text table.
std::string to_table(const std::vector<ProfileRow>& rows);

/// The work that a case repeats.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs the work once (a training step, one generated answer, a kernel). Returns the seconds; for a kernel,
  /// by GPU timestamps.
  virtual double run(int64_t index) = 0;
  /// Returns the result of the last training step.
  virtual engine::StepResult last() const { return {}; }
  /// Returns the plan training programs; null for generation and kernels.
  virtual const engine::Plan* plan() const { return nullptr; }
  /// Returns the FLOP of one run without recompute; 0 for work that is limited by memory bandwidth.
  virtual double flops() const = 0;
  /// Returns the images or tokens of one run.
  virtual int64_t num_samples() const = 0;
  /// Returns the GPU that runs the work; null for the CPU. gpu_bytes(): total bytes allocated on it.
  virtual const gpu::DeviceInfo* gpu() const { return nullptr; }
  virtual int64_t gpu_bytes() const { return 0; }
  /// Returns a training step's seconds by op and shape, longest first, from the fastest of `num_steps` steps.
  virtual std::vector<ProfileRow> profile(int /*num_steps*/) { return {}; }
};

}  // namespace hearth::bench
