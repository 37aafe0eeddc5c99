#pragma once

#include <array>

#include "engine/objective.h"

namespace hearth::engine {

/// One micro-batch in the caller's memory: an array for each input of the objective, kInputSlack readable
/// bytes after each.
inline constexpr int64_t kInputSlack = 64;
struct MicroBatch {
  std::array<const void*, 6> inputs = {};
  int64_t num_rows = 0;
  int64_t row_length = 0;  ///< one of EngineOptions::row_lengths, or 0 where there are none

  BatchShape shape() const { return {.num_rows = num_rows, .row_length = row_length}; }
};

}  // namespace hearth::engine
