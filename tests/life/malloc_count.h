#pragma once

#include <cstdint>

namespace hearth {

/// While true, every call that allocates, in whatever thread and library, is counted: the C functions of this
/// program are replaced, and operator new ends in malloc.
void count_allocations(bool on);

struct AllocationCount {
  int64_t all_threads = 0;
  int64_t this_thread = 0;
};
/// Since counting was last switched on.
AllocationCount allocations();

/// Where the first allocations came from, one line per frame.
void print_allocations();

}  // namespace hearth
