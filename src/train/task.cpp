#include "train/image_task.h"
#include "train/preference_task.h"

namespace hearth::train {

std::unique_ptr<Task> open_task(const Recipe& recipe) {
  if (recipe.objective == "dpo") return std::make_unique<PreferenceTask>(recipe);
  if (is_text(recipe)) return std::make_unique<TextTask>(recipe);
  return std::make_unique<ImageTask>(recipe);
}

}  // namespace hearth::train
