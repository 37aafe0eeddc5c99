#pragma once

#include <cstdint>

namespace hearth {

/// While true, every call that allocates, in whatever thread and library, is counted: the C functions of this
/// program are replaced, and operator new ends in malloc.
void count_allocations(bool on);

struct AllocationCount {
  int64_t own = 0;          ///< asked for by this program, through the C++ library or not
  int64_t libraries = 0;    ///< asked for by any other library, for itself
  int64_t this_thread = 0;  ///< of the two, those of the calling thread
};
/// Since counting was last switched on.
AllocationCount allocations();

/// Where the first of this program's own came from, one line per frame.
void print_allocations();

}  // namespace hearth
