#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace hearth::train {
namespace {

/// From `start` to `end` by half a cosine; `share` runs over [0, 1].
double anneal(double start, double end, double share) {
  return end + (start - end) / 2 * (1 + std::cos(std::numbers::pi * share));
}

double one_cycle(const ScheduleOptions& options, double base_lr, double step, double total) {
  const double first = base_lr / options.div_factor;
  const double last = first / options.final_div_factor;
  const double top = options.pct_start * total - 1;
  const double end = std::max(total - 1, top);
  if (step <= top) return anneal(first, base_lr, top > 0 ? step / top : 1);
  return anneal(base_lr, last, end > top ? (step - top) / (end - top) : 1);
}

}  // namespace

double learning_rate(const ScheduleOptions& options, double base_lr, int64_t step, int64_t total_steps) {
  step = std::clamp<int64_t>(step, 0, std::max<int64_t>(total_steps - 1, 0));
  if (step < options.warmup_steps) {
    return base_lr * static_cast<double>(step + 1) / static_cast<double>(options.warmup_steps);
  }
  step -= options.warmup_steps;
  const auto total = static_cast<double>(std::max<int64_t>(total_steps - options.warmup_steps, 1));
  switch (options.kind) {
    case ScheduleOptions::Kind::constant:
      return base_lr;
    case ScheduleOptions::Kind::step:
      return base_lr *
             std::pow(options.gamma, static_cast<double>(step / std::max<int64_t>(options.step_size, 1)));
    case ScheduleOptions::Kind::cosine:
      return anneal(base_lr, options.min_lr, static_cast<double>(step) / total);
    case ScheduleOptions::Kind::onecycle:
      return one_cycle(options, base_lr, static_cast<double>(step), total);
  }
  return base_lr;
}

}  // namespace hearth::train
