#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/plan.h"

namespace hearth::planner {

/// Recipe settings with which a run fits a GPU, verified by planning all programs.
struct FitOption {
  std::string settings;  ///< overrides to paste: "train.batch=4 train.accumulate=8"
  std::string what;      ///< "recomputation (+18.7% work)"
  double slowdown = 1;   ///< slowdown per sample as predicted for EngineOptions::device
};

/// Returns at most three ways to fit a run into `gpu_bytes`, fastest first: smaller micro-batches,
/// recomputation, offload to host memory, 8-bit moments. `train_sizes`, `eval_sizes`: batch sizes
/// as for engine::compile().
std::vector<FitOption> find_fit_options(const engine::EngineOptions& options,
                                        std::span<const int64_t> train_sizes,
                                        std::span<const int64_t> eval_sizes, int64_t gpu_bytes);

}  // namespace hearth::planner
