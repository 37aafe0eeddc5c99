#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "recipe/recipe.h"

namespace hearth::run {

/// A recipe whose values are all known, and sentences on those that it did not have itself.
struct Resolved {
  recipe::Recipe recipe;
  std::vector<std::string> notes;
};

/// Fills in what a recipe for images leaves open: model.num_classes and model.class_names from the data,
/// data.mean and data.std from the weights in `init` or the data. A run that is in the folder `run` already
/// keeps what it was trained with. UserError where the data cannot be read.
Resolved resolve(recipe::Recipe recipe, const fs::path& run);
/// Fills in model.num_classes alone, for a plan: where there is no data, a usual number, which a note states.
Resolved resolve_for_plan(recipe::Recipe recipe);

}  // namespace hearth::run
