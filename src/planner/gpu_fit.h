#pragma once

#include <span>
#include <string>
#include <vector>

#include "engine/plan.h"

namespace hearth::planner {

/// Settings of a recipe under which it fits a GPU, found by planning everything with them.
struct WayToFit {
  std::string settings;      ///< overrides to paste: "train.batch=4 train.accumulate=8"
  std::string what;          ///< "recomputation (+18.7% work)"
  double times_as_long = 1;  ///< by EngineOptions::device, per sample
};

/// The fastest ways to bring a run that does not fit down to `gpu_bytes`, at most three: smaller
/// micro-batches, recomputation, what waits in host memory, moments in 8 bits. Sizes are those of compile().
std::vector<WayToFit> ways_to_fit(const engine::EngineOptions& options, std::span<const int64_t> train_sizes,
                                  std::span<const int64_t> eval_sizes, int64_t gpu_bytes);

}  // namespace hearth::planner
