#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// A sample of an op as a graph of one node.
struct DrawnSample {
  ir::Graph graph;
  std::map<ir::ValueId, std::vector<double>> values;  ///< of its inputs, drawn and rounded to their dtypes
  double tolerance = 0;

  const ir::Node& node() const { return graph.nodes[0]; }
};
/// The draws follow from `number` alone.
DrawnSample draw_sample(const ir::OpDef& op, const ir::Sample& sample, uint64_t number);

/// A tensor as it lies in memory.
std::vector<std::byte> to_bytes(const ir::Type& type, const std::vector<double>& values);

/// What a sample's output of that dtype may be off by, as a share of its largest number.
double sample_tolerance(const ir::Sample& sample, DType dtype);

/// Compares outputs, as they lie in memory, with the op's definition in float64, within the sample's
/// tolerance and what their dtypes resolve. Says the first difference; empty where there is none.
std::string compare_with_reference(const DrawnSample& sample,
                                   std::span<const std::vector<std::byte>> outputs);

}  // namespace hearth::ops
