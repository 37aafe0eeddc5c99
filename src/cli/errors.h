#pragma once

#include "base/function_ref.h"

namespace hearth::cli {

/// The result of `work`; what it throws is said on standard error in one sentence, and the exit status for it
/// returned: 2 for a mistake of the user, 69 for a worker that is missing, 71 for a card that failed, 70 for
/// what should not be.
int exit_status_of(FunctionRef<int()> work);

}  // namespace hearth::cli
