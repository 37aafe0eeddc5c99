#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/tolerance.h"
#include "ir/graph.h"

namespace hearth::exec {

/// A part of a tensor: its shape and, for each of its elements, the index in the full tensor.
struct Part {
  Shape shape;
  std::vector<int64_t> at;
};

/// Returns `count` of the indices [0, size), or all if there are fewer: the first, the last, and one from
/// each of equal intervals between them, so that every thread block that computes such an interval is tested.
std::vector<int64_t> spread(int64_t size, int64_t count);

/// A test of a model's node at its real size. The node runs on random inputs on the GPU. An excerpt, a node
/// small enough for the host to compute in float64, gives the expected values of some output elements.
struct NodeTest {
  /// Attributes of the tested node. It is shorter than the model's node if no output element has a small
  /// excerpt.
  ir::Attrs attrs;
  std::vector<ir::Type> in;
  std::vector<ir::Type> out;
  /// For each input, the exclusive upper bound of its random integers; 0: floating-point numbers.
  std::vector<int64_t> bounds;
  std::vector<float> scales;  ///< for each input, the factor of its random floating-point numbers
  ir::Attrs excerpt_attrs;
  std::vector<Part> excerpt_in, excerpt_out;
  /// Tolerance of all outputs; nullopt: the tolerance of the op's samples, relative to the largest element.
  std::optional<gpu::Tolerance> tolerance;
};
/// Returns the test of a node that has a GPU kernel; nullopt if the op has no rule or the host would take too
/// long.
std::optional<NodeTest> node_test_of(const ir::OpDef& op, const ir::NodeView& node);

/// Returns the bytes of input `index`. Floating-point inputs equal those that draw_on_gpu computes with seed
/// `index` and the input's scale.
std::vector<std::byte> test_input(const NodeTest& trial, size_t index);
/// Compares the outputs that the GPU computed with the excerpt's. Describes the first difference; empty if
/// there is none.
std::string compare_with_excerpt(const ir::OpDef& op, const NodeTest& trial,
                                 std::span<const std::vector<std::byte>> outputs);

}  // namespace hearth::exec
