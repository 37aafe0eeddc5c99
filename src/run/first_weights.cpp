#include "run/first_weights.h"

#include "base/error.h"
#include "hub/adapter.h"
#include "hub/image_weights.h"
#include "hub/weights.h"
#include "tasks/task_def.h"

namespace hearth::run {

void load_frozen_weights(engine::Engine& engine, const recipe::Recipe& recipe) {
  if (!engine.plan().teacher_tensors.empty()) {
    const bool has_more = tasks::task_of(recipe).model_format == tasks::ModelFormat::built_in;
    hub::load_teacher(engine, hub::find_model(recipe.distill.from).weights, has_more);
  }
  if (!hub::has_adapter(engine)) return;
  if (recipe.model.path.empty())
    user_error("expected model.path, the model that the adapter is for, got none; try model=FOLDER");
  hub::load_model(engine, recipe.init.empty() ? recipe.model.path : recipe.init);
}

std::vector<std::string> load_initial_weights(engine::Engine& engine, const recipe::Recipe& recipe) {
  std::vector<std::string> notes;
  const bool adapts = hub::has_adapter(engine);
  const std::string& first = recipe.init.empty() ? recipe.model.path : recipe.init;
  const bool whole = tasks::task_of(recipe).model_format != tasks::ModelFormat::built_in;
  if (!adapts && !first.empty() && whole) hub::load_model(engine, first);
  if (!first.empty() && !whole) notes = hub::load_image_weights(engine, first);
  if (adapts && !recipe.adapter.path.empty())
    hub::load_weights(engine, hub::adapter_weights(recipe.adapter.path));
  return notes;
}

}  // namespace hearth::run
