#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/tolerance.h"
#include "ir/graph.h"

namespace hearth::exec {

/// A part of a tensor: its shape, and the index of each of its elements in the full tensor.
struct Part {
  Shape shape;
  std::vector<int64_t> at;
};

/// Returns `count` of `size` indices, or all: the first, the last, and one of each interval between them, so
/// that every thread block that computes such an interval is tested.
std::vector<int64_t> spread(int64_t size, int64_t count);

/// A test of a model's node at its real size. The node runs on random inputs on the GPU. An excerpt, a node
/// small enough for the host to compute in float64, gives the expected values of some output elements.
struct NodeTest {
  /// attributes of the node that runs: shorter than the model's if no output element has a small excerpt
  ir::Attrs attrs;
  std::vector<ir::Type> in;
  std::vector<ir::Type> out;
  /// upper bound of the random integers of each input; 0: floating-point numbers
  std::vector<int64_t> bounds;
  std::vector<float> scales;  ///< factor of the random numbers of each input
  ir::Attrs excerpt_attrs;
  std::vector<Part> excerpt_in, excerpt_out;
  /// nullopt: tolerance of the op's samples, relative to the largest element
  std::optional<gpu::Tolerance> tolerance;
};
/// Returns the test of a node that has a GPU kernel; nullopt if the op has no rule or the host would take too
/// long.
std::optional<NodeTest> node_test_of(const ir::OpDef& op, const ir::NodeView& node);

/// Returns the bytes of input `index`; floating-point inputs are equal to draw_on_gpu with that seed and
/// scale.
std::vector<std::byte> test_input(const NodeTest& trial, size_t index);
/// Compares the outputs of the GPU with the excerpt. Describes the first difference; empty if there is none.
std::string compare_with_excerpt(const ir::OpDef& op, const NodeTest& trial,
                                 std::span<const std::vector<std::byte>> outputs);

}  // namespace hearth::exec
