#pragma once

#include <functional>
#include <span>

#include "engine/optimizer.h"
#include "passes/train_graph.h"

namespace hearth::engine {

/// Updates that workers make alone, each on its own micro-batches, before all of them move together (DiLoCo,
/// arXiv 2311.08105).
struct LocalStepsOptions {
  int64_t steps = 1;  ///< 1: workers make every update together
  /// Of the step together: Nesterov's, along the mean of what the workers moved.
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
};

inline constexpr const char* kInverseWorkers = "inverse_workers";
inline constexpr const char* kOuterRate = "outer_rate";

/// Adds an anchor and a momentum for every parameter of a graph.
void add_outer_states(ir::Graph& graph);
/// The step together, of all weights that `step` has, a graph with their anchors and momenta. Running
/// statistics become the mean over workers.
passes::TrainGraph make_outer_graph(const ir::Graph& step, std::span<const RunningStatistic> statistics,
                                    const LocalStepsOptions& options);

/// Adds the places, of all workers but the first, for the persistent values that `is_own` says
/// (ir::StateName::worker).
void add_places_of_workers(ir::Graph& graph, int num_workers,
                           const std::function<bool(const ir::Value&)>& is_own);

}  // namespace hearth::engine
