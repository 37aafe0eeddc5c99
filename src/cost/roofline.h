#pragma once

#include <string>
#include <vector>

#include "cost/device.h"
#include "ir/graph.h"

namespace hearth::cost {

/// Nodes of one op, together.
struct RooflineRow {
  std::string op;
  int count = 0;     ///< nodes
  int launches = 0;  ///< kernels: one for each node, or for a run of nodes that one kernel takes
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

/// A program as a model of a device would run it, one kernel after another: each takes the seconds of its
/// nodes (seconds_of) and of a launch. A model: nothing is measured.
struct Roofline {
  std::vector<RooflineRow> rows;  ///< the longest first
  int launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;

  /// Adds another program, run `times` times.
  void add(const Roofline& other, int times);
};
Roofline make_roofline(const ir::Graph& graph, const Device& device);

}  // namespace hearth::cost
