#pragma once

#include <cstdint>

#include "recipe/recipe.h"

namespace hearth::run {

/// The learning rate of step `step` (from 0) of `total`. A linear warm-up comes first; one-cycle (Smith and
/// Topin 2018) has torch.optim.lr_scheduler.OneCycleLR's numbers for pct_start 0.3 and cosine annealing.
double learning_rate(const recipe::Schedule& schedule, double base, int64_t step, int64_t total);

}  // namespace hearth::run
