#pragma once

#include <cstdint>

namespace hearth::train {

/// How the learning rate changes over a run. Steps count updates, from 0.
struct ScheduleOptions {
  enum class Kind : uint8_t { constant, step, cosine, onecycle };
  Kind kind = Kind::constant;
  /// The first steps climb in a line, base * (step + 1) / warmup_steps; the schedule proper starts behind
  /// them.
  int64_t warmup_steps = 0;
  /// step: the rate is multiplied by `gamma` every `step_size` steps (torch.optim.lr_scheduler.StepLR).
  int64_t step_size = 0;
  double gamma = 0.1;
  /// cosine: half a cosine from the base rate down to this one (SGDR, arXiv 1608.03983, without restarts).
  double min_lr = 0;
  /// onecycle (Smith, arXiv 1708.07120): from base / div_factor up to base over the first `pct_start` of the
  /// steps, then down to base / div_factor / final_div_factor, both by cosines (torch's OneCycleLR).
  double pct_start = 0.3;
  double div_factor = 25;
  double final_div_factor = 1e4;
};

/// The learning rate of update `step` of `total_steps`. Steps at or past the end keep the last value.
double learning_rate(const ScheduleOptions& options, double base_lr, int64_t step, int64_t total_steps);

}  // namespace hearth::train
