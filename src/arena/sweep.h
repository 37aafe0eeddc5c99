#pragma once

#include "arena/problem.h"

namespace hearth::arena {

/// Simulates a best-fit allocator over time: each buffer is allocated in the smallest sufficient gap at
/// its start and freed at its end. No search, O(n log n), so a result is available immediately for any
/// number of buffers.
Solution sweep(const Problem& problem);

}  // namespace hearth::arena
