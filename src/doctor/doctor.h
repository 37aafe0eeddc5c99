#pragma once

#include <vector>

#include "doctor/finding.h"
#include "doctor/program.h"
#include "system/machine.h"

namespace hearth::doctor {

/// Everything that decides whether a machine can train, best news first within each check. `program`: null
/// where the machine is not this one, so that nothing can be asked but its files.
std::vector<Finding> examine(const system::Machine& machine, const Program* program);

}  // namespace hearth::doctor
