#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost/device.h"
#include "engine/plan.h"
#include "exec/replay.h"
#include "planner/plan_report.h"

namespace hearth::planner {

/// Bandwidths between workers with one GPU each, in bytes per second.
struct Links {
  /// Between a GPU and its host's memory, per direction; 0: taken from the GPU model.
  double gpu = 0;
  /// Host memory of a machine, reads plus writes of all GPUs and workers: assumed to be two channels of DDR5.
  double memory = 60e9;
  /// All-reduce by a worker's CPU of an array beyond the caches. Measured 4.5e9 on the
  /// machine of bench/RESULTS-comm.md.
  double sums = 9e9;
  /// Network between machines with one GPU each, per direction; 0: all GPUs are in one machine.
  double network = 0;
};
/// Returns the payload bandwidth of TCP: 1448 of 1538 bytes per frame.
double network_bytes_per_second(double bits_per_second);

/// Model of an update on several GPUs, which need not exist: replays each program's steps in their order and
/// with their dependencies, at the predicted times of a GPU model. A simulation, not a measurement.
struct ScalingModel {
  int64_t num_workers = 1;
  double seconds = 0;  ///< of one update
  /// part of `seconds` in which GPU 0 is idle, waiting for copies or other workers
  double exposed_seconds = 0;
  std::array<double, exec::kNumQueues> busy_seconds = {};  ///< busy time of worker 0's queues
  int64_t num_samples = 0;                                 ///< images or tokens of an update
  bool is_text = false;
  std::vector<PlanReport> plans;       ///< of each worker; a single one if all are equal
  std::vector<double> kernel_seconds;  ///< kernel time of each worker's GPU in an update
  int64_t gpu_bytes = 0;               ///< maximum PlanReport::peak_bytes of all workers
  int64_t host_bytes = 0;              ///< PlanReport::host_bytes of the same worker

  double samples_per_second() const { return static_cast<double>(num_samples) / seconds; }
  std::string_view samples_name() const { return is_text ? "tokens" : "images"; }
};

/// Plans the programs of every worker's GPU and replays them; nothing is executed.
ScalingModel model_scaling(std::vector<engine::EngineOptions> workers, const cost::Device& gpu,
                           const Links& links);
/// Models EngineOptions::num_workers workers with equal options.
ScalingModel model_scaling(const engine::EngineOptions& options, const cost::Device& gpu, const Links& links);
/// Returns the options of each worker, which differ in rank.
std::vector<engine::EngineOptions> options_of_workers(const engine::EngineOptions& options);

/// Formats the model as a few lines, compared with `one`, the same work on one GPU.
std::string to_text(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);
/// Formats the model as one line of JSON.
std::string to_json(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);

}  // namespace hearth::planner
