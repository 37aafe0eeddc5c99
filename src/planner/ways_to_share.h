#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scaling_model.h"

namespace hearth::planner {

/// A parallelism strategy for a recipe, with its predicted performance.
struct ParallelPlan {
  std::string settings;                 ///< recipe settings: "devices=2 parallel=zero1"
  std::string fit;                      ///< changes needed to fit a GPU: "unchanged", "recomputation (...)"
  std::vector<std::string> stage_fits;  ///< pipeline: changes needed for each stage
  std::optional<ScalingModel> model;    ///< predicted update; nullopt if no plan fits
};

/// Plans a run with these settings, using the fastest plan that fits (MemoryFits::cheapest). `gpu_bytes`:
/// memory of each worker's GPU. All workers use the plan for the smallest GPU, except for pipelines, where
/// each stage has its own plan.
ParallelPlan plan_parallelism(std::string settings, engine::EngineOptions options,
                              std::span<const int64_t> gpu_bytes, const cost::Device& gpu,
                              const Links& links);

/// Formats the strategies as a table for terminals, or as JSON.
std::string to_table(const std::vector<ParallelPlan>& ways);
std::string to_json(const std::vector<ParallelPlan>& ways);

}  // namespace hearth::planner
