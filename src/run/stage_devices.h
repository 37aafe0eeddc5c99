#pragma once

#include <vector>

#include "distributed/process_group.h"
#include "passes/parallel/stages.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// Returns memory and speed of GPU number `device`, for dividing a pipeline into stages. The speed is 0 for
/// an unknown GPU and for the CPU.
passes::StageDevice stage_device(const recipe::Recipe& recipe, int device);
/// Returns the stage devices of all workers by rank. `local`: stage_device() of this worker. If the speed of
/// one device is unknown, returns the same speed for all. Collective call.
std::vector<passes::StageDevice> gather_stage_devices(const passes::StageDevice& local,
                                                      distributed::ProcessGroup& group);

}  // namespace hearth::run
