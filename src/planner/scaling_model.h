#pragma once

#include <span>
#include <string>
#include <vector>

#include "cost/device.h"
#include "engine/plan.h"
#include "exec/replay.h"
#include "planner/plan_report.h"

namespace hearth::planner {

/// What bytes between workers go over, a GPU each; all in bytes per second.
struct Links {
  /// Between a GPU and its host's memory, each way; 0: the GPU model's.
  double gpu = 0;
  /// Reads and writes of host memory together, by the GPUs and workers of a machine: two channels of DDR5,
  /// assumed.
  double memory = 60e9;
  /// Of an array beyond the caches that a worker's processor adds up with the others': measured on one
  /// machine, 4.5e9 on that of bench/RESULTS-comm.md.
  double sums = 9e9;
  /// Each way, between machines of one GPU each; 0: one machine has all GPUs.
  double network = 0;
};
/// What TCP leaves of so many bits per second: 1448 bytes in a frame of 1538.
double network_bytes_per_second(double bits_per_second);

/// An update on GPUs that need not be there: each program's steps in their order and with their waits, at
/// the times of a GPU model. A simulation, not a measurement.
struct ScalingModel {
  int64_t num_workers = 1;
  double seconds = 0;          ///< of an update
  double exposed_seconds = 0;  ///< of them, in which a GPU stands still and waits for copies or other workers
  std::array<double, exec::kNumQueues> busy_seconds = {};  ///< of a worker's queues
  int64_t num_samples = 0;                                 ///< pictures, or tokens, of an update
  bool is_text = false;
  std::vector<PlanReport> plans;       ///< of each worker; one where all are alike
  std::vector<double> kernel_seconds;  ///< of each worker's GPU, in an update
  int64_t gpu_bytes = 0;               ///< PlanReport::peak_bytes of the one that needs most
  int64_t host_bytes = 0;              ///< PlanReport::host_bytes of that one

  double samples_per_second() const { return static_cast<double>(num_samples) / seconds; }
  std::string_view samples_name() const { return is_text ? "tokens" : "images"; }
};

/// Plans the programs of every worker's GPU (nothing is run) and replays them.
ScalingModel model_scaling(std::vector<engine::EngineOptions> workers, const cost::Device& gpu,
                           const Links& links);
/// The same for EngineOptions::num_workers that have the same options.
ScalingModel model_scaling(const engine::EngineOptions& options, const cost::Device& gpu, const Links& links);
/// For each worker its rank.
std::vector<engine::EngineOptions> options_of_workers(const engine::EngineOptions& options);

/// A few lines beside `one`, the same work on one GPU.
std::string to_text(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);
/// One line of JSON.
std::string to_json(const ScalingModel& model, const ScalingModel& one, const cost::Device& gpu,
                    const Links& links);

}  // namespace hearth::planner
