#pragma once

#include "base/dtype.h"
#include "ir/graph.h"

namespace hearth::passes {

/// Rates that turn the cost of a node into seconds. A model, for choosing among plans.
struct Machine {
  double flops_per_second = 1e11;
  double bytes_per_second = 1e10;
  /// Between the device and host memory, each way.
  double link_bytes_per_second = 1e10;
};

/// An RX 7900 XT: three quarters of its peak in 16 bits, what its library reaches in f32, 85% of 800 GB/s,
/// PCIe 4.0 x16.
Machine radeon(DType precision);

/// Seconds of a node alone.
double cost_seconds(const ir::Graph& graph, const ir::Node& node, const Machine& machine);

struct StepTime {
  double seconds = 0;
  double compute_seconds = 0;
  /// The busier direction of the link.
  double link_seconds = 0;
};

/// Runs the order on three queues: computing, copies to the device, copies to the host. A copy may start when
/// the node in front of it is done; a node waits for what it reads.
StepTime simulate(const ir::Graph& graph, const Machine& machine);

}  // namespace hearth::passes
