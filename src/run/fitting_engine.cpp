#include "run/fitting_engine.h"

#include "base/error.h"
#include "base/text.h"
#include "planner/gpu_fit.h"
#include "planner/plan_report.h"

namespace hearth::run {
namespace {

[[noreturn]] void refuse(const engine::DoesNotFit& refused, const engine::EngineOptions& options,
                         std::span<const int64_t> train_sizes, std::span<const int64_t> eval_sizes) {
  std::string advice = "no settings that fit were found; use a smaller model";
  const std::vector<planner::FitOption> options_that_fit =
      planner::find_fit_options(options, train_sizes, eval_sizes, refused.usable_bytes);
  if (!options_that_fit.empty()) advice = "settings that fit, fastest first (modeled):";
  for (const planner::FitOption& option : options_that_fit)
    advice +=
        fmt::format("\n  {}   ({}, {:.2f} times as long)", option.settings, option.what, option.slowdown);
  throw UserReport(fmt::format("the plan needs {2}, but {1} has only {0} of usable memory:\n{3}{4}",
                               human_bytes(refused.usable_bytes), refused.device,
                               human_bytes(refused.needed_bytes),
                               planner::to_table(planner::make_plan_report(*refused.plan)), advice));
}

}  // namespace

std::unique_ptr<engine::Engine> make_engine(const engine::EngineOptions& options,
                                            std::span<const int64_t> train_sizes,
                                            std::span<const int64_t> eval_sizes) {
  try {
    return std::make_unique<engine::Engine>(options, train_sizes, eval_sizes);
  } catch (const engine::DoesNotFit& refused) {
    if (train_sizes.empty()) throw;
    refuse(refused, options, train_sizes, eval_sizes);
  }
}

}  // namespace hearth::run
