#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/gpu/tolerance.h"
#include "ir/graph.h"

namespace hearth::exec {

/// A part of a value: its shape, and where each of its elements lies in the whole.
struct Part {
  Shape shape;
  std::vector<int64_t> at;
};

/// `count` of so many indices, or all: the first, the last, and one of each stretch between them, so that no
/// block of threads is left out that has a stretch.
std::vector<int64_t> spread(int64_t size, int64_t count);

/// How a node of a model is tried at its own size: it runs on drawn inputs, and an excerpt of it, a node so
/// small that the host computes it in float64, says what some of its outputs' elements are.
struct Trial {
  ir::Attrs attrs;  ///< of what runs: the node, or one that is shorter where no output has a small excerpt
  std::vector<ir::Type> in;
  std::vector<ir::Type> out;
  std::vector<int64_t> bounds;  ///< of each input: it is drawn from whole numbers below; 0: from all numbers
  std::vector<float> scales;    ///< of each input: what its drawn numbers are multiplied by
  ir::Attrs excerpt_attrs;
  std::vector<Part> excerpt_in, excerpt_out;
  std::optional<gpu::Tolerance> tolerance;  ///< none: that of the op's samples, of the largest element
};
/// None where the op has none or the host would take too long. `node` has a kernel for GPUs.
std::optional<Trial> trial_of(const ir::OpDef& op, const ir::NodeView& node);

/// Input `index` of a trial, as it lies in memory; floating ones are what draw_on_gpu draws with that seed
/// and scale.
std::vector<std::byte> trial_input(const Trial& trial, size_t index);
/// Compares what ran with the excerpt. Says the first difference; empty where there is none.
std::string compare_with_excerpt(const ir::OpDef& op, const Trial& trial,
                                 std::span<const std::vector<std::byte>> outputs);

}  // namespace hearth::exec
