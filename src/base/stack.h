#pragma once

#include "base/function_ref.h"

namespace hearth {

/// Calls `work` on the main thread with as much stack as take_stack() takes, whatever the limit of stacks
/// (ulimit -s): below 2 MiB on a stack in a mapping of its own, and threads get larger stacks too.
/// std::bad_alloc where there is no room. Throws what `work` throws.
int with_stack(FunctionRef<int()> work);

}  // namespace hearth
