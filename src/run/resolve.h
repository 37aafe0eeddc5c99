#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "tasks/job.h"
#include "tasks/task.h"

namespace hearth::run {

/// A recipe as a job, and sentences on values that were filled in.
struct Resolved {
  tasks::Job job;
  std::vector<std::string> notes;
};

/// Fills in the values that a recipe leaves open: model.num_classes and
/// model.class_names from the data, data.mean and data.std from the `init` weights or the data, data.date. If
/// the folder `run` has a run already, its values are used. UserError if the model or the data cannot be
/// read.
Resolved resolve(tasks::Job job, const fs::path& run);
/// Fills in only model.num_classes, for a plan. Without data it is a default number, which a note states.
Resolved resolve_for_plan(tasks::Job job);
/// Stores the class names of the task's data in its recipe. Throws a UserError if the recipe has different
/// names.
void take_class_names(recipe::Recipe& recipe, const tasks::Task& task);

}  // namespace hearth::run
