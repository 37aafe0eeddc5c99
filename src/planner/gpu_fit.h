#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/plan.h"

namespace hearth::planner {

/// Recipe settings with which a run fits a GPU, verified by planning all programs.
struct FitOption {
  std::string settings;  ///< overrides to paste: "train.batch=4 train.accumulate=8"
  std::string what;      ///< description for users: "recomputation (+18.7% work)"
  /// Predicted time per sample on EngineOptions::device, relative to the original settings.
  double slowdown = 1;
};

/// Returns at most three settings with which a run fits into `gpu_bytes`, fastest first: smaller
/// micro-batches, recomputation, offload to host memory, 8-bit moments. `train_sizes`, `eval_sizes`: as for
/// engine::make_plan().
std::vector<FitOption> find_fit_options(const engine::EngineOptions& options,
                                        std::span<const int64_t> train_sizes,
                                        std::span<const int64_t> eval_sizes, int64_t gpu_bytes);

}  // namespace hearth::planner
