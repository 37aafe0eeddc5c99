#pragma once

#include "cost/device.h"
#include "ir/graph.h"

namespace hearth::cost {

/// Seconds of a node alone on a device, without the launch of its kernel. The only formula there is: what is
/// recomputed, offloaded, cut into stages, simulated or added up is weighed by it.
double seconds_of(const ir::Graph& graph, const ir::Node& node, const Device& device);

struct StepTime {
  double seconds = 0;
  double compute_seconds = 0;
  /// The busier direction of the link.
  double link_seconds = 0;
};

/// Runs the order on three queues: computing, copies to the device, copies to the host. A copy may start when
/// the node before it is done; a node waits for what it reads.
StepTime simulate(const ir::Graph& graph, const Device& device);

}  // namespace hearth::cost
