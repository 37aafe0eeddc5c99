#pragma once

#include <cstdint>

namespace hearth::passes {

/// When a node of a micro-batch is made, in a pipeline.
enum class MicroPart : uint8_t {
  once,      ///< from weights alone: one time for all micro-batches
  early,     ///< ahead of an earlier stage's forward pass, from a weight of both: a table's rows
  forward,   ///< in a micro-batch's forward pass
  backward,  ///< in its backward pass
  late,      ///< when an earlier stage's backward pass has given its part: the gradient of a weight of both
};

}  // namespace hearth::passes
