#include "run/schedule.h"

#include <algorithm>
#include <cmath>

namespace hearth::run {

double learning_rate(const recipe::Schedule& schedule, double base, int64_t step, int64_t total) {
  using Kind = recipe::ScheduleKind;
  const auto cosine = [](double from, double to, double share) {
    return to + (from - to) / 2 * (1 + std::cos(3.14159265358979323846 * share));
  };
  if (schedule.name == Kind::onecycle) {
    const double last_up = 0.3 * static_cast<double>(total) - 1;
    const auto at = static_cast<double>(std::min(step, total - 1));
    if (at <= last_up) return cosine(base / 25, base, at / last_up);
    return cosine(base, base / 25 / 1e4, (at - last_up) / (static_cast<double>(total) - 1 - last_up));
  }
  if (step < schedule.warmup_steps) {
    return base * static_cast<double>(step + 1) / static_cast<double>(schedule.warmup_steps);
  }
  const int64_t after = step - schedule.warmup_steps;
  if (schedule.name == Kind::step)
    return base * std::pow(schedule.gamma, static_cast<double>(after / schedule.step_size));
  if (schedule.name == Kind::constant) return base;
  const auto length = static_cast<double>(std::max<int64_t>(1, total - schedule.warmup_steps));
  return cosine(base, schedule.min_lr, std::min(1.0, static_cast<double>(after) / length));
}

}  // namespace hearth::run
