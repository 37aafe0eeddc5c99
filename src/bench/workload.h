#pragma once

#include <memory>
#include <string>

#include "backend/gpu/device.h"
#include "distributed/process_group.h"

namespace hearth::bench {

/// What a case is run on.
struct BenchMachine {
  int num_threads = 1;
  std::string device = "cpu";  ///< or as in exec::GpuWish
  /// Null, or this process's end of a group that trains together, each rank on a micro-batch of every update.
  distributed::ProcessGroup* group = nullptr;
};

/// What a case repeats, ready to run.
class Workload {
 public:
  virtual ~Workload() = default;
  /// Runs the work once (a training step, a whole answer, a kernel) and returns its seconds; of a kernel, by
  /// the GPU's clock.
  virtual double run(int64_t index) = 0;
  /// Of the last training step: StepResult::exchange_seconds.
  virtual double exchange_seconds() const { return 0; }
  /// Of one run, without what is computed again to save memory; 0 where memory and not arithmetic is the
  /// limit.
  virtual double flops() const = 0;
  /// Images or tokens of one run.
  virtual int64_t num_samples() const = 0;
  /// What it runs on, and the bytes it has there; null: the processor.
  virtual const gpu::DeviceInfo* gpu() const { return nullptr; }
  virtual int64_t gpu_bytes() const { return 0; }
  /// A table of a training step's seconds by op and shape, the longest first.
  virtual std::string profile() { return ""; }
};

}  // namespace hearth::bench
