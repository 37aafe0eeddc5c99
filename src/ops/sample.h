#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "ir/graph.h"

namespace hearth::ops {

/// A test case of an op: a graph of one node, and pseudorandom input values.
struct DrawnSample {
  ir::Graph graph;
  std::map<ir::ValueId, std::vector<double>> values;  ///< input values, rounded to their dtypes
  double tolerance = 0;

  const ir::Node& node() const { return graph.nodes[0]; }
};
/// Draws the input values of a sample, with `number` as the seed.
DrawnSample draw_sample(const ir::OpDef& op, const ir::Sample& sample, uint64_t number);

/// Returns the bytes of a tensor: `values` in row-major order, converted to the dtype of `type`.
std::vector<std::byte> to_bytes(const ir::Type& type, const std::vector<double>& values);

/// Returns the tolerance of an output of that dtype, relative to the output's largest absolute value.
double sample_tolerance(const ir::Sample& sample, DType dtype);

/// Compares outputs (the bytes of each tensor) with the op's float64 reference, within the sample's tolerance
/// and the precision of their dtypes. Returns a description of the first difference; empty if there is none.
std::string compare_with_reference(const DrawnSample& sample,
                                   std::span<const std::vector<std::byte>> outputs);

}  // namespace hearth::ops
