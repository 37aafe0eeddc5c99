#include "train/memory_fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"

namespace hearth::train {
namespace {

constexpr int64_t kMostRows = 1 << 20;

/// From the least traffic to the most.
constexpr passes::OffloadOptions kWays[] = {
    {},
    {.activations = true},
    {.states = true},
    {.states = true, .activations = true},
    {.weights = true, .activations = true},
    {.states = true, .weights = true, .activations = true},
};

}  // namespace

MemoryFits::MemoryFits(EngineOptions options, int64_t memory_bytes)
    : options_(std::move(options)), memory_bytes_(memory_bytes) {
  options_.measure_only = true;
  options_.budget_bytes = 0;
}

MemoryFits::~MemoryFits() = default;

Engine& MemoryFits::engine(int64_t batch) {
  std::unique_ptr<Engine>& made = engines_[batch];
  if (!made) {
    EngineOptions options = options_;
    options.batch = batch;
    made = std::make_unique<Engine>(std::move(options), std::span(&batch, 1), std::span<const int64_t>{});
  }
  return *made;
}

PlanReport MemoryFits::placed(int64_t batch, const passes::OffloadOptions& offload, int64_t budget_bytes) {
  engine(batch).place(offload, budget_bytes);
  return make_plan_report(engine(batch));
}

/// Batch norm over a single row has no variance, so some models start at a batch of 2.
PlanReport MemoryFits::smallest() {
  try {
    return placed(1, {}, 0);
  } catch (const UserError&) {
    return placed(2, {}, 0);
  }
}

/// `least` fits. The peak is nearly affine in the batch, so each probe lands close; the last ones settle it.
PlanReport MemoryFits::largest_from(const PlanReport& least, FunctionRef<PlanReport(int64_t)> plan_of) {
  PlanReport best = least;
  PlanReport probe = plan_of(least.batch + 1);
  int64_t too_large = 0;
  for (int round = 0; round < 12; ++round) {
    if (probe.peak_bytes > memory_bytes_) {
      too_large = probe.batch;
    } else {
      best = probe;
    }
    if (too_large != 0 && best.batch + 1 >= too_large) break;
    const double slope = static_cast<double>(probe.peak_bytes - least.peak_bytes) /
                         static_cast<double>(probe.batch - least.batch);
    const auto guess =
        best.batch +
        static_cast<int64_t>(static_cast<double>(memory_bytes_ - best.peak_bytes) / std::max(1.0, slope));
    if (best.batch == kMostRows) break;
    probe = plan_of(std::clamp(guess, best.batch + 1, too_large != 0 ? too_large - 1 : kMostRows));
  }
  return best;
}

std::optional<PlanReport> MemoryFits::largest_as_it_is() {
  const PlanReport least = smallest();
  if (least.peak_bytes > memory_bytes_) return std::nullopt;
  return largest_from(least, [&](int64_t batch) { return placed(batch, {}, 0); });
}

/// The plan as it is if it fits, else with the arena held to what is left; nothing if that fails.
std::optional<PlanReport> MemoryFits::fitting(int64_t batch, const passes::OffloadOptions& offload) {
  PlanReport report = placed(batch, offload, 0);
  if (report.peak_bytes <= memory_bytes_) return report;
  const int64_t budget = memory_bytes_ - (report.peak_bytes - report.arena_bytes);
  if (budget <= 0) return std::nullopt;
  report = placed(batch, offload, budget);
  if (report.peak_bytes > memory_bytes_) return std::nullopt;
  return report;
}

std::optional<MemoryFit> MemoryFits::cheapest() {
  const int64_t least_bytes = options_.offload.least_bytes;
  const bool has_states =
      placed(options_.batch, {.states = true, .least_bytes = least_bytes}, 0).host_bytes > 0;
  std::optional<MemoryFit> best;
  for (passes::OffloadOptions way : kWays) {
    if (way.states && !has_states) continue;
    way.least_bytes = least_bytes;
    const auto report = fitting(options_.batch, way);
    if (!report) continue;
    if (!best || report->time.seconds < best->report.time.seconds)
      best = MemoryFit{.offload = way, .report = *report};
    // Nothing was given up: no other way is faster.
    if (report->host_bytes == 0 && report->recompute.num_recomputed == 0) break;
  }
  return best;
}

PlanReport MemoryFits::largest(const MemoryFit& fit) {
  constexpr int64_t kAsLowAsItGoes = 1;
  const auto plan_of = [&](int64_t batch) { return placed(batch, fit.offload, kAsLowAsItGoes); };
  return largest_from(plan_of(fit.report.batch), plan_of);
}

std::string describe(const MemoryFit& fit) {
  std::vector<std::string> parts;
  const passes::RecomputeResult& recompute = fit.report.recompute;
  if (recompute.num_recomputed > 0) {
    const double before = fit.report.flops_per_step - recompute.extra_flops;
    parts.push_back(fmt::format("recomputation (+{:.1f}% work)", 100 * recompute.extra_flops / before));
  }
  std::vector<std::string> away;
  if (fit.offload.states) away.emplace_back("states");
  if (fit.offload.weights) away.emplace_back("weights");
  if (recompute.num_stashed > 0) away.push_back(fmt::format("{} activations", recompute.num_stashed));
  if (!away.empty()) parts.push_back(fmt::format("{} in host memory", fmt::join(away, " and ")));
  return parts.empty() ? "as it is" : fmt::format("{}", fmt::join(parts, ", "));
}

}  // namespace hearth::train
