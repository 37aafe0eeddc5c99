#pragma once

#include <vector>

#include "distributed/process_group.h"
#include "passes/parallel/stages.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// The GPU of number `device` for a stage of a pipeline; of speed 0 where nothing is known of it, and for
/// the processor.
passes::StageDevice stage_device(const recipe::Recipe& recipe, int device);
/// Those of all workers, from each its own; every worker calls it. Alike where the speed of one is not known.
std::vector<passes::StageDevice> gather_stage_devices(const passes::StageDevice& own,
                                                      distributed::ProcessGroup& group);

}  // namespace hearth::run
