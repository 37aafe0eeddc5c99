#pragma once

#include <memory>
#include <vector>

#include "engine/objective.h"
#include "recipe/recipe.h"
#include "tasks/job.h"

namespace hearth::tasks {

/// Parses model.widths.
std::vector<nn::Width> widths_of(const recipe::Recipe& recipe);

/// Returns the training objective of a job; its model has the numbers of channels in model.widths.
std::shared_ptr<const engine::Objective> objective_of(const Job& job);

}  // namespace hearth::tasks
