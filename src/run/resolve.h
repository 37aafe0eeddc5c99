#pragma once

#include <string>
#include <vector>

#include "base/path.h"
#include "tasks/job.h"
#include "tasks/task.h"

namespace hearth::run {

/// A job with a completed recipe, and sentences for users about the values that were filled in.
struct Resolved {
  tasks::Job job;
  std::vector<std::string> notes;
};

/// Fills in values that a recipe does not set: model.num_classes and model.class_names from the data,
/// data.mean and data.std from the `init` weights or the data, data.date, and saved_activations=auto. If the
/// folder `run` contains a run already, uses the values of its config.yaml. Throws a UserError if the model
/// or the data cannot be read.
Resolved resolve(tasks::Job job, const fs::path& run);
/// Fills in only model.num_classes, for `hearth plan`. If there is no data, uses a default number of classes
/// and adds a note about it.
Resolved resolve_for_plan(tasks::Job job);
/// Stores the class names of the task's data in its recipe. Throws a UserError if the recipe has different
/// names.
void take_class_names(recipe::Recipe& recipe, const tasks::Task& task);

}  // namespace hearth::run
