#include "planner/ways_to_share.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "planner/memory_fit.h"

namespace hearth::planner {
namespace {

/// Max number of times that arena budgets are lowered because a packed arena exceeded its budget (gaps in the
/// packing). Each time a budget falls by at least 1 / kMaxBudgetSteps of its value.
constexpr int kTries = 3;
constexpr int64_t kMaxBudgetSteps = 128;

/// Changes the options such that the run fits a GPU with `gpu_bytes`, and describes the changes in `how`;
/// returns false if that is impossible.
bool fit(engine::EngineOptions& options, int64_t gpu_bytes, std::string& how) {
  const std::optional<MemoryFit> found = MemoryFits(options, gpu_bytes).cheapest();
  if (!found) return false;
  how = describe(*found);
  options.offload = found->offload;
  options.budget_bytes = found->budget_bytes;
  return true;
}

/// Lowers the budgets of workers whose plans exceed their GPUs. Returns true if all plans fit.
bool lower_budgets(std::vector<engine::EngineOptions>& workers, const ScalingModel& model,
                   std::span<const int64_t> gpu_bytes) {
  bool fits = true;
  for (size_t i = 0; i < workers.size(); ++i) {
    const PlanReport& plan = model.plans[std::min(i, model.plans.size() - 1)];
    const int64_t above = plan.peak_bytes - gpu_bytes[i];
    if (above <= 0) continue;
    fits = false;
    int64_t& budget = workers[i].budget_bytes;
    const int64_t before = budget > 0 ? budget : plan.arena_bytes;
    budget = std::max<int64_t>(1, before - std::max(above, before / kMaxBudgetSteps));
  }
  return fits;
}

std::string stage_line(const ParallelPlan& way, size_t stage) {
  const PlanReport& plan = way.model->plans[stage];
  return fmt::format("    {:<25} {:>12} {:>12} {:>10.1f} {:>23}  {}\n",
                     fmt::format("stage {}: {} weights", stage, plan.num_parameters),
                     human_bytes(plan.peak_bytes), human_bytes(plan.host_bytes),
                     1e3 * way.model->kernel_seconds[stage], "kernels alone", way.stage_fits[stage]);
}

}  // namespace

ParallelPlan plan_parallelism(std::string settings, engine::EngineOptions options,
                              std::span<const int64_t> gpu_bytes, const cost::Device& gpu,
                              const Links& links) {
  options.backend = exec::Backend::gpu;
  options.device = gpu;
  const bool has_stages = options.parallel == Parallel::pipeline && options.num_workers > 1;
  std::vector<int64_t> room(gpu_bytes.begin(), gpu_bytes.begin() + options.num_workers);
  ParallelPlan way{.settings = std::move(settings)};
  if (has_stages) {
    for (const int64_t num_bytes : room) options.devices.push_back({.memory_bytes = num_bytes});
  } else {
    std::ranges::fill(room, *std::ranges::min_element(room));
    if (!fit(options, room[0], way.fit)) return way;
  }
  std::vector<engine::EngineOptions> workers = options_of_workers(options);
  for (size_t i = 0; i < workers.size() && has_stages; ++i) {
    if (!fit(workers[i], room[i], way.stage_fits.emplace_back())) return way;
  }
  for (int i = 0; i <= kTries; ++i) {
    ScalingModel model = model_scaling(workers, gpu, links);
    if (!lower_budgets(workers, model, room)) continue;
    way.model = std::move(model);
    break;
  }
  return way;
}

std::string to_table(const std::vector<ParallelPlan>& ways) {
  std::string text = fmt::format("  {:<27} {:>12} {:>12} {:>10} {:>10} {:>12}  {}\n", "", "on each GPU",
                                 "host memory", "ms", "exposed", "per second", "changes to fit");
  for (const ParallelPlan& way : ways) {
    if (!way.model) {
      text += fmt::format("  {:<27} does not fit\n", way.settings);
      continue;
    }
    const ScalingModel& model = *way.model;
    text += fmt::format("  {:<27} {:>12} {:>12} {:>10.1f} {:>9.1f}% {:>12.1f}  {}\n", way.settings,
                        human_bytes(model.gpu_bytes), human_bytes(model.host_bytes), 1e3 * model.seconds,
                        100 * model.exposed_seconds / model.seconds, model.samples_per_second(), way.fit);
    for (size_t stage = 0; stage < way.stage_fits.size(); ++stage) text += stage_line(way, stage);
  }
  return text;
}

std::string to_json(const std::vector<ParallelPlan>& ways) {
  std::vector<std::string> rows;
  for (const ParallelPlan& way : ways) {
    std::string row = fmt::format("{{\"settings\":\"{}\",\"fits\":{}", way.settings, way.model.has_value());
    if (way.model) {
      const ScalingModel& model = *way.model;
      row += fmt::format(
          ",\"how\":\"{}\",\"gpu_bytes\":{},\"host_bytes\":{},\"modeled_seconds\":{:.9f},"
          "\"exposed_seconds\":{:.9f},\"samples_per_second\":{:.3f}",
          way.fit, model.gpu_bytes, model.host_bytes, model.seconds, model.exposed_seconds,
          model.samples_per_second());
    }
    rows.push_back(row + "}");
  }
  return fmt::format("[{}]", fmt::join(rows, ","));
}

}  // namespace hearth::planner
