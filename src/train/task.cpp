#include "train/image_task.h"
#include "train/text_task.h"

namespace hearth::train {

std::unique_ptr<Task> open_task(const Recipe& recipe) {
  if (is_text(recipe)) return std::make_unique<TextTask>(recipe);
  return std::make_unique<ImageTask>(recipe);
}

}  // namespace hearth::train
