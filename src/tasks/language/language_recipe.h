#pragma once

#include "tasks/language/language_model.h"
#include "tasks/language/text_task.h"

/// Options of language models, from recipes.
namespace hearth::tasks {

TextOptions text_options(const recipe::Recipe& recipe);
/// UserError if data.balance is set, which is for images.
TextTaskOptions text_task_options(const recipe::Recipe& recipe);
/// Reads the model's config.json. UserError if a tied head would be adapted.
LanguageModelOptions language_options(const recipe::Recipe& recipe);

}  // namespace hearth::tasks
