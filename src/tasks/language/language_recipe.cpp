#include "tasks/language/language_recipe.h"

#include "base/error.h"
#include "hub/adapter.h"
#include "tasks/task_def.h"

namespace hearth::tasks {

TextOptions text_options(const recipe::Recipe& recipe) {
  return {.model = recipe.model, .data = recipe.data, .pairs = recipe::has_pairs(recipe)};
}

TextTaskOptions text_task_options(const recipe::Recipe& recipe) {
  if (recipe.data.balance)
    user_error("expected a model of images for data.balance=true, got {}; try data.balance=false",
               recipe::model_name(recipe));
  return {.text = text_options(recipe), .batch = recipe.train.batch, .adapts = recipe.adapter.wanted()};
}

LanguageModelOptions language_options(const recipe::Recipe& recipe) {
  const models::DecoderConfig config = models::read_decoder_config(recipe.model.config_file());
  if (config.tied_head) hub::check_untied(hub::builder_adapter(recipe.adapter));
  return {.config = config, .context = recipe.data.context, .documents = recipe::has_documents(recipe)};
}

extern const TaskDef language_task;
const TaskDef language_task = {
    .name = "language",
    .owns = recipe::is_text,
    .objective = [](const recipe::Recipe& recipe) { return language_model(language_options(recipe)); },
    .open = [](const recipe::Recipe& recipe, int) -> std::unique_ptr<Task> {
      return std::make_unique<TextTask>(text_task_options(recipe));
    },
    .generates = "text"};

}  // namespace hearth::tasks
