#pragma once

#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "base/function_ref.h"
#include "planner/plan_report.h"

namespace hearth::planner {

/// A way to stay within a budget: what waits in host memory; what is made again is in the report.
struct MemoryFit {
  passes::OffloadOptions offload;
  PlanReport report;
  int64_t budget_bytes = 0;  ///< EngineOptions::budget_bytes
};

/// Every choice of what waits in host memory, from the least traffic to the most.
std::span<const passes::OffloadOptions> ways_to_offload();

/// Finds what fits a budget by planning, never by estimating. Graphs are grown once per micro-batch.
class MemoryFits {
 public:
  static constexpr int64_t kAnyBytes = std::numeric_limits<int64_t>::max();
  /// `host_bytes`: at most so many may wait in host memory; 0: nothing does.
  MemoryFits(engine::EngineOptions options, int64_t memory_bytes, int64_t host_bytes = kAnyBytes);

  /// The largest micro-batch that fits as it is; nothing when not even one sample does.
  std::optional<PlanReport> largest_as_it_is();
  /// The way to run a micro-batch of EngineOptions::batch that is fastest by EngineOptions::device: as it
  /// is, with recomputation, with states, weights or activations in host memory. Nothing if none fits.
  std::optional<MemoryFit> cheapest();
  /// The largest micro-batch, from EngineOptions::batch on, that fits by every means, whatever it costs.
  std::optional<PlanReport> largest_by_every_means();

 private:
  PlanReport placed(int64_t batch, const passes::OffloadOptions& offload, int64_t budget_bytes);
  PlanReport smallest();
  std::optional<PlanReport> fitting(int64_t batch, const passes::OffloadOptions& offload);
  PlanReport largest_from(const PlanReport& least, FunctionRef<PlanReport(int64_t)> plan_of);

  engine::EngineOptions options_;
  int64_t memory_bytes_;
  int64_t host_bytes_;
  std::map<int64_t, engine::Plan> measured_;  ///< by the size of a micro-batch
};

/// What a fit does: "as it is", or "recomputation (+18.7% work), states in host memory".
std::string describe(const MemoryFit& fit);

}  // namespace hearth::planner
