#pragma once

#include <memory>
#include <string>
#include <vector>

#include "distributed/process_group.h"

namespace hearth::run {

/// How many processes mpirun, or srun with PMIx, started together with this one, itself included: 1 where
/// nobody did.
int num_launched();
/// `overrides` with devices=num_launched(), where there are several and they do not say it themselves.
std::vector<std::string> with_launched(std::vector<std::string> overrides);
/// This process's end of their group; null where it is alone. UserError where `num_workers`, which the recipe
/// wants, is another number.
std::unique_ptr<distributed::ProcessGroup> join_launched(int64_t num_workers);

}  // namespace hearth::run
