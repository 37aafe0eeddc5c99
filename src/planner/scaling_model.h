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
  /// Link between a GPU and its host's memory, per direction; 0: rate of the GPU model.
  double gpu = 0;
  /// Host memory of a machine, shared by reads and writes of all GPUs and workers. Default: two channels of
  /// DDR5.
  double memory = 60e9;
  /// All-reduce by a worker's CPU, for an array larger than the caches. Measured on the machine of
  /// bench/RESULTS-comm.md: 4.5e9.
  double sums = 9e9;
  /// Network between machines with one GPU each, per direction; 0: all GPUs are in one machine.
  double network = 0;
};
/// Returns the TCP payload in bytes per second on a link of this bit rate: 1448 of the 1538 bytes of each
/// frame.
double network_bytes_per_second(double bits_per_second);

/// Simulation of an update on several GPUs, which need not exist: replays the steps of each program in order
/// and with their dependencies, with the times that a GPU model predicts.
struct ScalingModel {
  int64_t num_workers = 1;
  double seconds = 0;  ///< predicted seconds of one update
  /// Part of `seconds` in which GPU 0 is idle because it waits for copies or other workers.
  double exposed_seconds = 0;
  std::array<double, exec::kNumQueues> busy_seconds = {};  ///< busy time of worker 0's queues
  int64_t num_samples = 0;                                 ///< images or tokens of an update
  bool is_text = false;
  std::vector<PlanReport> plans;       ///< report of each worker's plan; a single one if all are equal
  std::vector<double> kernel_seconds;  ///< kernel time of each worker's GPU in an update
  int64_t gpu_bytes = 0;               ///< maximum PlanReport::peak_bytes of all workers
  int64_t host_bytes = 0;              ///< PlanReport::host_bytes of the worker with this maximum

  double samples_per_second() const { return static_cast<double>(num_samples) / seconds; }
  std::string_view samples_name() const { return is_text ? "tokens" : "images"; }
};

/// Plans the programs of every worker on a GPU of this model and simulates an update; executes nothing.
/// `workers`: options of each worker.
ScalingModel model_scaling(std::vector<engine::EngineOptions> workers, const cost::Device& gpu,
                           const Links& links);
/// Simulates EngineOptions::num_workers workers with equal options.
ScalingModel model_scaling(const engine::EngineOptions& options, const cost::Device& gpu, const Links& links);
/// Returns the options of each worker, which differ in EngineOptions::rank.
std::vector<engine::EngineOptions> options_of_workers(const engine::EngineOptions& options);

/// Formats the result as a few lines, with a comparison to `one`, the result for the same work on one GPU.
std::string to_text(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);
/// Formats the result as one line of JSON.
std::string to_json(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);

}  // namespace hearth::planner
