#pragma once

#include "arena/problem.h"

namespace hearth::arena {

/// Goes through time as an allocator does: a buffer takes the tightest gap that is free when it starts and
/// gives it back when it ends. No search, but n log n time: an answer that is there at once however many
/// buffers.
Solution sweep(const Problem& problem);

}  // namespace hearth::arena
