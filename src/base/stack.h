#pragma once

#include "base/function_ref.h"

namespace hearth {

/// Calls `work` on the main thread with enough stack for touch_stack_pages(). If the stack limit (ulimit -s)
/// is below 2 MiB, `work` runs on a memory-mapped stack, and the stacks of new threads are enlarged.
/// std::bad_alloc if the stack cannot be allocated. Rethrows exceptions of `work`.
int with_stack(FunctionRef<int()> work);

}  // namespace hearth
