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
  std::string device = "cpu";  ///< "cpu" or a GPU (exec::GpuRequest::device)
  /// Process group for data-parallel training: each rank trains one micro-batch per update. Null: this
  /// process alone.
  distributed::ProcessGroup* group = nullptr;
};

/// Totals over all nodes of a training step that have the same op and result shape.
struct ProfileRow {
  std::string op;
  std::string shape;  ///< shape of the result: "[64, 288]"
  double seconds = 0, flops = 0;
  int count = 0;
};
/// Formats the rows as a text table.
std::string to_table(const std::vector<ProfileRow>& rows);

/// The work of a case, which run() performs once.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs the work once (a training step, one generated answer, a kernel). Returns the seconds; on
  /// a GPU, by its timestamps before and after the queued work.
  virtual double run(int64_t index) = 0;
  /// Returns the result of the last training step.
  virtual engine::StepResult last() const { return {}; }
  /// Returns the plan of the training programs; null for generation and kernels.
  virtual const engine::Plan* plan() const { return nullptr; }
  /// Returns the FLOP of one run, without recomputed work; 0 if memory bandwidth limits the work.
  virtual double flops() const = 0;
  /// Returns the number of images or tokens that one run processes.
  virtual int64_t num_samples() const = 0;
  /// Returns the GPU that runs the work; null for the CPU.
  virtual const gpu::DeviceInfo* gpu() const { return nullptr; }
  virtual int64_t gpu_bytes() const { return 0; }
  /// Runs `num_steps` training steps and returns the seconds of the fastest one by op and shape, longest
  /// first.
  virtual std::vector<ProfileRow> profile(int /*num_steps*/) { return {}; }
};

}  // namespace hearth::bench
