#pragma once

#include "cost/device.h"
#include "ir/graph.h"

namespace hearth::cost {

/// Returns the predicted seconds of a node on a device, without launch overhead. Recompute, offload, pipeline
/// stages, simulation and reports all use this formula.
double seconds_of(const ir::Graph& graph, const ir::Node& node, const Device& device);

/// Range of a time in seconds.
struct TimeRange {
  double low = 0;
  double high = 0;

  /// Adds another range, multiplied by `times`.
  void add(const TimeRange& other, double times);
};
/// Returns the expected range of a node's time: its predicted seconds and the error of the model
/// (expectation.h).
TimeRange expected_seconds(const ir::Graph& graph, const ir::Node& node, const Device& device);

/// Predicted time of one run of a graph.
struct StepTime {
  double seconds = 0;
  double compute_seconds = 0;
  /// Expected range of `seconds`: assumes that every part of the run differs from the model by the same
  /// factor as compute_seconds.
  TimeRange expected;
  /// Busy time of the link between device and host memory, in the direction that is busy longer.
  double link_seconds = 0;
};

/// Simulates the graph's nodes in order on three queues: compute, copies to the device, copies to the host. A
/// node starts when its inputs are ready and its queue is idle; a copy also waits for the compute node before
/// it.
StepTime simulate(const ir::Graph& graph, const Device& device);

}  // namespace hearth::cost
