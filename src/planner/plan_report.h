#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/seconds.h"
#include "engine/plan.h"

namespace hearth::planner {

/// Memory and time of a training step, computed before anything is allocated.
struct PlanReport {
  int64_t batch = 0;
  int64_t weight_bytes = 0;
  int64_t frozen_bytes = 0;     ///< frozen base weights of a run that trains an adapter
  int64_t optimizer_bytes = 0;  ///< momentum, moments, averages, running statistics
  int64_t gradient_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t staging_bytes = 0;  ///< device memory for two copies of the inputs (double buffering)
  /// Size of the packed arena, which contains activations, gradients and workspaces.
  int64_t arena_bytes = 0;
  int64_t bound_bytes = 0;  ///< lower bound of the arena for this order of nodes
  int64_t peak_bytes = 0;   ///< total device memory of the step
  int64_t host_bytes = 0;   ///< bytes of host memory for offloaded values
  /// Max size of the cache of decoded images in host memory; set by the code that opens the data
  int64_t kept_bytes = 0;
  double flops_per_step = 0;
  int64_t num_parameters = 0;
  passes::EncodeResult encoded;  ///< saved activations in fp8
  passes::RecomputeResult recompute;
  cost::StepTime time;  ///< predicted time of one micro-batch on EngineOptions::device

  /// Returns by which fraction the packed arena exceeds its lower bound.
  double gap() const {
    return bound_bytes == 0 ? 0 : static_cast<double>(arena_bytes) / static_cast<double>(bound_bytes) - 1;
  }
};

/// Returns the report of a plan's training step.
PlanReport make_plan_report(const engine::Plan& plan);
/// Compiles the training step for EngineOptions::batch and returns its report.
PlanReport make_plan_report(const engine::EngineOptions& options);

/// Describes saved activations in fp8: number, bytes, modeled time, rounding error; "" if there are none.
std::string describe(const passes::EncodeResult& encoded);
/// Formats the report as a table for terminals, or as JSON.
std::string to_table(const PlanReport& report);
std::string to_json(const PlanReport& report);

}  // namespace hearth::planner
