#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/program.h"
#include "system/machine.h"

namespace hearth::doctor {

/// Checks everything that training needs. `program`: the runtimes and GPUs of this program; null if `machine`
/// is a saved copy of another machine's files.
std::vector<Finding> examine(const system::Machine& machine, const Program* program);

}  // namespace hearth::doctor
