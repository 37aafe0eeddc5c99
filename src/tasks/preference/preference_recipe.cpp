#include "tasks/language/language_recipe.h"
#include "tasks/preference/dpo.h"
#include "tasks/preference/preference_task.h"
#include "tasks/task_def.h"

namespace hearth::tasks {

extern const TaskDef preference_task;
const TaskDef preference_task = {
    .name = "preference",
    .owns = [](const recipe::Recipe& recipe) { return recipe::is_text(recipe) && recipe::has_pairs(recipe); },
    .objective = [](const Job& job) { return dpo(language_options(job), job.recipe.dpo); },
    .open = [](const Job& job, int) -> std::unique_ptr<Task> {
      return std::make_unique<PreferenceTask>(job);
    },
    .fill_in = fill_in_date,
    .check_records = check_texts,
    .model_format = ModelFormat::transformers,
    .generates = "text"};

}  // namespace hearth::tasks
