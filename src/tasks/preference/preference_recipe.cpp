#include "tasks/language/language_recipe.h"
#include "tasks/preference/dpo.h"
#include "tasks/preference/preference_task.h"
#include "tasks/task_def.h"

namespace hearth::tasks {

extern const TaskDef preference_task;
const TaskDef preference_task = {
    .name = "preference",
    .owns = [](const recipe::Recipe& recipe) { return recipe::is_text(recipe) && recipe::has_pairs(recipe); },
    .objective = [](const recipe::Recipe& recipe) { return dpo(language_options(recipe), recipe.dpo); },
    .open = [](const recipe::Recipe& recipe, int) -> std::unique_ptr<Task> {
      return std::make_unique<PreferenceTask>(text_task_options(recipe), recipe.dpo.beta);
    },
    .generates = "text"};

}  // namespace hearth::tasks
