#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cost/seconds.h"
#include "engine/plan.h"

namespace hearth::planner {

/// What a training step needs, known before anything is allocated.
struct PlanReport {
  int64_t batch = 0;
  int64_t weight_bytes = 0;
  int64_t frozen_bytes = 0;     ///< weights under an adapter
  int64_t optimizer_bytes = 0;  ///< momentum, moments, averages, running statistics
  int64_t gradient_bytes = 0;
  int64_t activation_bytes = 0;
  int64_t workspace_bytes = 0;
  int64_t staging_bytes = 0;  ///< double-buffered input
  int64_t arena_bytes = 0;    ///< packed height: activations, gradients, workspace
  int64_t bound_bytes = 0;    ///< no packing of this order can be lower
  int64_t peak_bytes = 0;     ///< everything on the device together
  int64_t host_bytes = 0;     ///< what waits in host memory
  int64_t kept_bytes = 0;     ///< decoded pictures in host memory, at most: set by whoever opens the data
  double flops_per_step = 0;
  int64_t num_parameters = 0;
  passes::RecomputeResult recompute;
  cost::StepTime time;  ///< of one micro-batch, by EngineOptions::device

  double gap() const {
    return bound_bytes == 0 ? 0 : static_cast<double>(arena_bytes) / static_cast<double>(bound_bytes) - 1;
  }
};

/// What a compiled training step needs.
PlanReport make_plan_report(const engine::Plan& plan);
/// The same of EngineOptions::batch, which is compiled for it.
PlanReport make_plan_report(const engine::EngineOptions& options);

/// The report as a table for people and as JSON for programs.
std::string to_table(const PlanReport& report);
std::string to_json(const PlanReport& report);

}  // namespace hearth::planner
