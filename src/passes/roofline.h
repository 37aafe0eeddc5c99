#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "passes/machine.h"

namespace hearth::passes {

/// Nodes of one op, together.
struct RooflineRow {
  std::string op;
  int count = 0;     ///< nodes
  int launches = 0;  ///< kernels: one for each node, or for a run of nodes that one kernel takes
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

/// A program as a model of a GPU would run it, kernel after kernel: each takes the longer of its arithmetic
/// and its memory traffic (Williams, Waterman, Patterson 2009), and the cost of a launch. A model: nothing is
/// measured.
struct Roofline {
  std::vector<RooflineRow> rows;  ///< the longest first
  int launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;

  /// Adds another program, run `times` times.
  void add(const Roofline& other, int times);
};
Roofline make_roofline(const ir::Graph& graph, const GpuModel& gpu);

/// What one node adds to it, without the launch.
double kernel_seconds(const ir::Graph& graph, const ir::Node& node, const GpuModel& gpu);

}  // namespace hearth::passes
