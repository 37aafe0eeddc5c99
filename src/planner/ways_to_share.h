#pragma once

#include <optional>
#include <string>
#include <vector>

#include "planner/scaling_model.h"

namespace hearth::planner {

/// How GPUs can make the updates of a recipe.
struct WayToShare {
  std::string settings;                 ///< of the recipe: "devices=2 parallel=zero1"
  std::string fit;                      ///< what it takes to fit a GPU: "as it is", "recomputation (...)"
  std::vector<std::string> stage_fits;  ///< of a pipeline: what it takes of each
  std::optional<ScalingModel> model;    ///< absent where it does not fit by any means
};

/// Plans what the settings come to for GPUs of that many bytes, one for each device, by the means to fit
/// that are fastest (MemoryFits::cheapest). All do the same within the smallest GPU, but for a pipeline's
/// stages.
WayToShare plan_way_to_share(std::string settings, engine::EngineOptions options,
                             std::span<const int64_t> gpu_bytes, const cost::Device& gpu, const Links& links);

/// A table for people and JSON for programs.
std::string to_table(const std::vector<WayToShare>& ways);
std::string to_json(const std::vector<WayToShare>& ways);

}  // namespace hearth::planner
