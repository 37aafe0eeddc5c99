#include "run/update_options.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace hearth::run {
namespace {

/// Parses optimizer.rates, entries such as "encoder=0.1", into modules and factors.
std::vector<std::pair<std::string, double>> module_rates(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, double>> made;
  for (const std::string& text : texts) {
    const size_t equals = text.rfind('=');
    double factor = -1;
    const char* end = text.data() + text.size();
    const bool is_pair = equals != text.npos && equals > 0;
    const auto read = std::from_chars(is_pair ? text.data() + equals + 1 : end, end, factor);
    if (read.ptr != end || !(factor >= 0 && factor <= 1e6))
      user_error("expected optimizer.rates like [encoder=0.1], with factors from 0 on, got '{}'", text);
    made.emplace_back(text.substr(0, equals), factor);
  }
  return made;
}

}  // namespace

engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe) {
  const recipe::Optimizer& optimizer = recipe.optimizer;
  const auto name = std::ranges::find(engine::optimizer_names(), optimizer.name);
  HEARTH_CHECK(name != engine::optimizer_names().end());
  return {.name = *name,
          .momentum = optimizer.momentum,
          .nesterov = optimizer.nesterov,
          .weight_decay = optimizer.weight_decay,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .clip_norm = recipe.train.clip_norm,
          .in_backward = optimizer.in_backward,
          .rates = module_rates(optimizer.rates),
          .ema_decay = recipe.train.ema};
}

}  // namespace hearth::run
