#pragma once

#include <vector>

#include "comm/transport.h"
#include "passes/stages.h"
#include "train/recipe.h"

namespace hearth::train {

/// The card of number `device` for a stage of a pipeline; of speed 0 where nothing is known of it, and for
/// the processor.
passes::StageDevice stage_device(const Recipe& recipe, int device);
/// Those of all workers, from each its own; every worker calls it. Alike where the speed of one is not known.
std::vector<passes::StageDevice> gather_stage_devices(const passes::StageDevice& own, comm::Transport& team);

}  // namespace hearth::train
