#pragma once

#include <string>
#include <vector>

#include "cost/device.h"
#include "cost/seconds.h"
#include "ir/graph.h"

namespace hearth::cost {

/// Totals of all nodes with the same op.
struct RooflineRow {
  std::string op;
  int count = 0;     ///< number of nodes
  int launches = 0;  ///< number of kernel launches; several nodes may share one
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
};

/// Roofline model of a program (Williams, Waterman, Patterson 2009): kernels run one after another, and each
/// takes the predicted seconds of its nodes (seconds_of) plus the launch overhead. Nothing is measured.
struct Roofline {
  std::vector<RooflineRow> rows;  ///< sorted by seconds, longest first
  int launches = 0;
  double flops = 0;
  double bytes = 0;
  double seconds = 0;
  TimeRange expected;  ///< sum of the rows' ranges; may exclude `seconds` (expected_seconds)

  /// Adds the totals of another program, multiplied by `times`.
  void add(const Roofline& other, int times);
};
/// Returns the roofline model of a program's graph on a device.
Roofline make_roofline(const ir::Graph& graph, const Device& device);

}  // namespace hearth::cost
