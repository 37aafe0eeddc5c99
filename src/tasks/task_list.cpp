#include <algorithm>

#include "base/error.h"
#include "tasks/task_def.h"

namespace hearth::tasks {

extern const TaskDef diffuse_task, preference_task, language_task, detect_task, segment_task, classify_task;

namespace {

constexpr const TaskDef* kTasks[] = {&diffuse_task, &preference_task, &language_task,
                                     &detect_task,  &segment_task,    &classify_task};

}  // namespace

const TaskDef& task_of(const recipe::Recipe& recipe) {
  const auto found = std::ranges::find_if(kTasks, [&](const TaskDef* task) { return task->owns(recipe); });
  HEARTH_CHECK(found != std::end(kTasks));
  return **found;
}

const TaskDef& image_task_of(const recipe::Recipe& recipe, const fs::path& run) {
  const TaskDef& task = task_of(recipe);
  if (task.predictor == nullptr)
    user_error(
        "'{0}' generates {1}, but this command needs a model for classification, segmentation or detection; "
        "use hearth generate {0} --prompt ...",
        run.string(), task.generates);
  return task;
}

}  // namespace hearth::tasks
