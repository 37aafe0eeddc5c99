#pragma once

#include <cstdint>

namespace hearth::passes {

/// Phase of a pipeline in which a node runs.
enum class MicroPart : uint8_t {
  once,  ///< runs once for all micro-batches: depends on weights only
  /// Runs before an earlier stage's forward pass, and computes from a weight that both stages use what that
  /// stage needs: for example rows of an embedding table.
  early,
  forward,   ///< forward pass of a micro-batch
  backward,  ///< backward pass of a micro-batch
  late,      ///< runs after an earlier stage's backward pass: gradient of a weight that both stages use
};

}  // namespace hearth::passes
