#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/program.h"
#include "system/machine.h"

namespace hearth::doctor {

/// Checks everything that decides if a machine can train. `program`: runtimes and GPUs of this program; null
/// if the machine is not this one (a saved copy of its files).
std::vector<Finding> examine(const system::Machine& machine, const Program* program);

}  // namespace hearth::doctor
