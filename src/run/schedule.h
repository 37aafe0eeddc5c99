#pragma once

#include <cstdint>

#include "recipe/recipe.h"

namespace hearth::run {

/// Returns the learning rate of step `step` (0-based) of `total` steps. `base`: max learning rate
/// (optimizer.lr). Schedules start with a linear warm-up, except for one-cycle (Smith and Topin 2018, arXiv
/// 1708.07120), which equals torch.optim.lr_scheduler.OneCycleLR with pct_start=0.3 and cosine annealing.
double learning_rate(const recipe::Schedule& schedule, double base, int64_t step, int64_t total);

}  // namespace hearth::run
