#pragma once

#include "cost/device.h"
#include "ir/graph.h"

namespace hearth::cost {

/// Returns the predicted seconds of a node on a device, without kernel launch. The only cost formula:
/// recompute, offload, pipeline stages, simulation and reports all use it.
double seconds_of(const ir::Graph& graph, const ir::Node& node, const Device& device);

/// Predicted time of one run of a graph.
struct StepTime {
  double seconds = 0;
  double compute_seconds = 0;
  /// Busy time of the busier direction of the link.
  double link_seconds = 0;
};

/// Simulates the graph's nodes in order on three queues: computing, copies to the device, copies to the host.
/// A copy starts after the compute node before it has finished; a node starts when its inputs are ready.
StepTime simulate(const ir::Graph& graph, const Device& device);

}  // namespace hearth::cost
