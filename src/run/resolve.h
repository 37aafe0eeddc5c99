#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "recipe/recipe.h"
#include "tasks/task.h"

namespace hearth::run {

/// A recipe with all values filled in, and sentences on the filled-in values.
struct Resolved {
  recipe::Recipe recipe;
  std::vector<std::string> notes;
};

/// Fills in the open values of an image recipe: model.num_classes and model.class_names from the data,
/// data.mean and data.std from the `init` weights or the data. If the folder `run` has a run already, its
/// values are used. UserError if the data cannot be read.
Resolved resolve(recipe::Recipe recipe, const fs::path& run);
/// Fills in only model.num_classes, for a plan. Without data it is a default number, which a note states.
Resolved resolve_for_plan(recipe::Recipe recipe);
/// Stores the class names of the task's data in its recipe. Throws a UserError if the recipe has different
/// names.
void take_class_names(recipe::Recipe& recipe, const tasks::Task& task);

}  // namespace hearth::run
