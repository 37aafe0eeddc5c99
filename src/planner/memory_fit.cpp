// Search for plans within a memory budget. A plan is the result of the memory passes and the packer for a
// micro-batch size, an offload choice and an arena budget. Graphs are built once per micro-batch size; for
// another offload choice or budget, only the memory passes run again. cheapest() tries the offload choices in
// order of increasing traffic and keeps the one with the lowest predicted time. The largest micro-batch is
// the solution of peak(batch) = memory. The peak is nearly affine in the batch, so the secant method
// converges quickly; bisection is the fallback.
#include "planner/memory_fit.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "engine/plan_builder.h"

namespace hearth::planner {
namespace {

/// Upper limit of the batch size.
constexpr int64_t kMaxRows = 1 << 20;
/// Number of secant steps before bisection.
constexpr int kSecants = 6;

/// Offload choices in order of increasing traffic.
constexpr passes::OffloadOptions kOffloadChoices[] = {
    {},
    {.activations = true},
    {.states = true},
    {.states = true, .activations = true},
    {.weights = true, .activations = true},
    {.states = true, .weights = true, .activations = true},
};

/// Returns how many rows of `row_bytes` bytes fit into `bytes`.
int64_t rows_within(int64_t bytes, double row_bytes) {
  const double rows = static_cast<double>(bytes) / std::max(1.0, row_bytes);
  return static_cast<int64_t>(std::min<double>(rows, kMaxRows));
}

}  // namespace

std::span<const passes::OffloadOptions> offload_choices() { return kOffloadChoices; }

std::vector<passes::OffloadOptions> MemoryFits::choices() const {
  using enum SavedActivations;
  const passes::OffloadOptions& allowed = options_.offload;
  const bool is_pipeline = options_.parallel == Parallel::pipeline;
  std::vector<passes::OffloadOptions> result;
  for (const SavedActivations saved : {full, fp8}) {
    if (allowed.saved == automatic ? is_pipeline && saved == fp8 : allowed.saved != saved) continue;
    for (passes::OffloadOptions way : kOffloadChoices) {
      way.min_bytes = allowed.min_bytes;
      way.min_encoded_bytes = allowed.min_encoded_bytes;
      way.saved = saved;
      result.push_back(way);
    }
  }
  return result;
}

MemoryFits::MemoryFits(engine::EngineOptions options, int64_t memory_bytes, int64_t host_bytes)
    : options_(std::move(options)), memory_bytes_(memory_bytes), host_bytes_(host_bytes) {}

PlanReport MemoryFits::planned(int64_t batch, const passes::OffloadOptions& offload, int64_t budget_bytes) {
  auto found = measured_.find(batch);
  if (found == measured_.end()) {
    engine::EngineOptions options = options_;
    options.batch = batch;
    options.offload = offload;
    options.budget_bytes = budget_bytes;
    found = measured_.emplace(batch, engine::measure_plan(options, std::span(&batch, 1), {})).first;
  } else if (const engine::EngineOptions& last = found->second.options;
             last.offload != offload || last.budget_bytes != budget_bytes) {
    engine::replan(found->second, offload, budget_bytes);
  }
  return make_plan_report(found->second);
}

/// Returns the plan of the smallest batch: 1, or 2 for models that reject 1 because batch norm over a single
/// row has no variance.
PlanReport MemoryFits::smallest() {
  const passes::OffloadOptions way = choices().front();
  try {
    return planned(1, way, 0);
  } catch (const UserError&) {
    return planned(2, way, 0);
  }
}

/// Returns the plan of the largest batch that fits; `min_plan` must fit. Uses the secant method, because the
/// peak is nearly affine in the batch, then bisection.
PlanReport MemoryFits::largest_from(const PlanReport& min_plan, FunctionRef<PlanReport(int64_t)> plan_of) {
  PlanReport best = min_plan;
  std::optional<PlanReport> too_large;
  // First guess: the arena is proportional to the batch.
  int64_t guess =
      rows_within(memory_bytes_ - (min_plan.peak_bytes - min_plan.arena_bytes),
                  static_cast<double>(min_plan.arena_bytes) / static_cast<double>(min_plan.batch));
  for (int round = 0; best.batch < kMaxRows && (!too_large || best.batch + 1 < too_large->batch); ++round) {
    const int64_t max_batch = too_large ? too_large->batch - 1 : kMaxRows;
    const PlanReport probe = plan_of(std::clamp(guess, best.batch + 1, max_batch));
    const PlanReport before = best;
    if (probe.peak_bytes > memory_bytes_) {
      too_large = probe;
    } else {
      best = probe;
    }
    const PlanReport& other = too_large ? *too_large : before;
    const double slope = static_cast<double>(other.peak_bytes - best.peak_bytes) /
                         static_cast<double>(other.batch - best.batch);
    if (too_large && round > kSecants) {
      guess = (best.batch + too_large->batch) / 2;
    } else if (slope > 0) {
      guess = best.batch + rows_within(memory_bytes_ - best.peak_bytes, slope);
    } else {
      guess = 4 * best.batch;
    }
  }
  return best;
}

std::optional<PlanReport> MemoryFits::largest_unmodified() {
  const PlanReport min_plan = smallest();
  if (min_plan.peak_bytes > memory_bytes_) return std::nullopt;
  return largest_from(min_plan, [&](int64_t batch) { return planned(batch, choices().front(), 0); });
}

/// Returns a plan for this batch and offload choice without recomputation if it fits, otherwise one whose
/// arena is limited to the free bytes by recomputation; nullopt if that does not fit either.
std::optional<PlanReport> MemoryFits::fitting(int64_t batch, const passes::OffloadOptions& offload) {
  PlanReport report = planned(batch, offload, 0);
  if (report.host_bytes > host_bytes_) return std::nullopt;
  if (report.peak_bytes <= memory_bytes_) return report;
  const int64_t budget = memory_bytes_ - (report.peak_bytes - report.arena_bytes);
  if (budget <= 0) return std::nullopt;
  report = planned(batch, offload, budget);
  if (report.peak_bytes > memory_bytes_ || report.host_bytes > host_bytes_) return std::nullopt;
  return report;
}

std::optional<MemoryFit> MemoryFits::cheapest() {
  const bool has_states =
      host_bytes_ > 0 &&
      planned(options_.batch, {.states = true, .min_bytes = options_.offload.min_bytes}, 0).host_bytes > 0;
  std::optional<MemoryFit> best;
  for (const passes::OffloadOptions& way : choices()) {
    if (way.uses_host() && (host_bytes_ == 0 || (way.states && !has_states))) continue;
    const auto report = fitting(options_.batch, way);
    if (!report) continue;
    if (!best || report->time.seconds < best->report.time.seconds)
      best = MemoryFit{.offload = way,
                       .report = *report,
                       .budget_bytes = measured_.at(options_.batch).options.budget_bytes};
    const passes::RecomputeResult& recomputed = report->recompute;
    // The plan has no recomputation and no offload, so no other choice can be faster.
    if (report->host_bytes == 0 && recomputed.num_recomputed == 0 && recomputed.num_smaller == 0) break;
  }
  return best;
}

std::optional<PlanReport> MemoryFits::largest_with_offload() {
  constexpr int64_t kMinArenaBudget = 1;
  const passes::OffloadOptions everything = choices().back();
  const auto plan_of = [&](int64_t batch) { return planned(batch, everything, kMinArenaBudget); };
  const PlanReport min_plan = plan_of(options_.batch);
  if (min_plan.peak_bytes > memory_bytes_) return std::nullopt;
  return largest_from(min_plan, plan_of);
}

std::string describe(const MemoryFit& fit) {
  std::vector<std::string> parts;
  const passes::RecomputeResult& recompute = fit.report.recompute;
  if (recompute.num_recomputed > 0) {
    const double before = fit.report.flops_per_step - recompute.extra_flops;
    parts.push_back(fmt::format("recomputation (+{:.1f}% work)", 100 * recompute.extra_flops / before));
  }
  if (recompute.num_smaller > 0) parts.emplace_back("smaller workspaces");
  if (fit.report.encoded.num_encoded > 0)
    parts.push_back(fmt::format("{} saved activations in fp8", fit.report.encoded.num_encoded));
  std::vector<std::string> away;
  if (fit.offload.states) away.emplace_back("states");
  if (fit.offload.weights) away.emplace_back("weights");
  if (recompute.num_stashed > 0) away.push_back(fmt::format("{} activations", recompute.num_stashed));
  if (!away.empty()) parts.push_back(fmt::format("{} in host memory", fmt::join(away, " and ")));
  return parts.empty() ? "unchanged" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace hearth::planner
