#pragma once

#include <functional>
#include <span>

#include "engine/optimizer.h"
#include "passes/train_graph.h"

namespace hearth::engine {

/// Local steps (DiLoCo, arXiv 2311.08105): every worker makes several updates of its copy of the weights
/// before all workers make an outer step.
struct LocalStepsOptions {
  int64_t steps = 1;  ///< updates per outer step; 1: no local steps, workers make every update together
  /// SGD with Nesterov momentum for the outer step. Its gradient is the mean over all workers of the weights'
  /// change since the last outer step.
  double outer_lr = 0.7;
  double outer_momentum = 0.9;
};

inline constexpr const char* kInverseWorkers = "inverse_workers";
inline constexpr const char* kOuterRate = "outer_rate";

/// Adds the states of the outer step for every parameter of a graph: an anchor (the weight after the last
/// outer step) and a momentum.
void add_outer_states(ir::Graph& graph);
/// Returns the graph of the outer step. `step`: graph of an update, which contains the weights and the states
/// of add_outer_states(). Running statistics are averaged over the workers.
passes::TrainGraph make_outer_graph(const ir::Graph& step, std::span<const RunningStatistic> statistics,
                                    const LocalStepsOptions& options);

/// Adds states for checkpoints: one copy per worker, except worker 0, of each persistent value that
/// `is_local` selects (ir::StateName::worker).
void add_states_of_workers(ir::Graph& graph, int num_workers,
                           const std::function<bool(const ir::Value&)>& is_local);

}  // namespace hearth::engine
