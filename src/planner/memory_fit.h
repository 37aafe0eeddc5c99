#pragma once

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/function_ref.h"
#include "planner/plan_report.h"

namespace hearth::planner {

/// A plan that fits a memory budget. `offload`: values offloaded to host memory, and precision of saved
/// activations; `report` counts the recomputed values.
struct MemoryFit {
  passes::OffloadOptions offload;
  PlanReport report;
  int64_t budget_bytes = 0;  ///< arena budget of the plan (EngineOptions::budget_bytes); 0: no limit
};

/// Returns all choices of offloaded values, in order of increasing traffic.
std::span<const passes::OffloadOptions> offload_choices();

/// Searches for plans that fit a memory budget. Measures real plans instead of estimating their memory.
/// Graphs are built once per micro-batch size.
class MemoryFits {
 public:
  static constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();
  /// `memory_bytes`: budget of device memory; `host_bytes`: max bytes offloaded to host memory, 0: no
  /// offload.
  MemoryFits(engine::EngineOptions options, int64_t memory_bytes, int64_t host_bytes = kAnyBytes);

  /// Returns the largest micro-batch that fits without recompute or offload; nullopt if not even
  /// one sample fits.
  std::optional<PlanReport> largest_unmodified();
  /// Returns the fastest plan, as predicted for EngineOptions::device, for micro-batch EngineOptions::batch:
  /// unmodified, with recompute, or with states, weights or activations offloaded; with saved activations in
  /// fp8 only if EngineOptions::offload allows it. nullopt if none fits.
  std::optional<MemoryFit> cheapest();
  /// Returns the largest micro-batch of at least EngineOptions::batch that fits with full recompute and
  /// offload, at any cost in time.
  std::optional<PlanReport> largest_with_offload();

 private:
  /// Returns the allowed choices: without fp8 before those with it, each in order of increasing traffic.
  std::vector<passes::OffloadOptions> choices() const;
  PlanReport planned(int64_t batch, const passes::OffloadOptions& offload, int64_t budget_bytes);
  PlanReport smallest();
  std::optional<PlanReport> fitting(int64_t batch, const passes::OffloadOptions& offload);
  PlanReport largest_from(const PlanReport& least, FunctionRef<PlanReport(int64_t)> plan_of);

  engine::EngineOptions options_;
  int64_t memory_bytes_;
  int64_t host_bytes_;
  std::map<int64_t, engine::Plan> measured_;  ///< plan by micro-batch size; changed by replan()
};

/// Describes the plan: "unchanged", or "recomputation (+18.7% work), states in host memory".
std::string describe(const MemoryFit& fit);

}  // namespace hearth::planner
