#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/program.h"
#include "system/machine.h"

namespace hearth::doctor {

/// Runs all checks of what training needs. `program`: the runtimes and GPUs that this program sees; null if
/// `machine` is a saved copy of another machine's files.
std::vector<Finding> examine(const system::Machine& machine, const Program* program);

}  // namespace hearth::doctor
