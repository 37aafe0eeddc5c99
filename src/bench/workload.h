#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"
#include "engine/engine.h"

namespace hearth::bench {

/// What a case is run on.
struct BenchMachine {
  int num_threads = 1;
  std::string device = "cpu";  ///< or as in exec::GpuWish
  /// Null, or this process's end of a group that trains together, each rank on a micro-batch of every update.
  distributed::ProcessGroup* group = nullptr;
};

/// Nodes of a training step that have the same op and a result of the same shape.
struct ProfileRow {
  std::string op;
  std::string shape;  ///< "[64, 288]"
  double seconds = 0, flops = 0;
  int count = 0;
};
/// A table of them for people.
std::string to_table(const std::vector<ProfileRow>& rows);

/// What a case repeats, ready to run.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs the work once (a training step, a whole answer, a kernel) and returns its seconds; of a kernel, by
  /// the GPU's clock.
  virtual double run(int64_t index) = 0;
  /// What the last training step came to.
  virtual engine::StepResult last() const { return {}; }
  /// The programs of training; null where it is none.
  virtual const engine::Plan* plan() const { return nullptr; }
  /// Of one run, without what is computed again to save memory; 0 where memory and not arithmetic is the
  /// limit.
  virtual double flops() const = 0;
  /// Images or tokens of one run.
  virtual int64_t num_samples() const = 0;
  /// What it runs on, and the bytes it has there; null: the processor.
  virtual const gpu::DeviceInfo* gpu() const { return nullptr; }
  virtual int64_t gpu_bytes() const { return 0; }
  /// A training step's seconds by op and shape, the longest first: the fastest of so many steps.
  virtual std::vector<ProfileRow> profile(int /*num_steps*/) { return {}; }
};

}  // namespace hearth::bench
