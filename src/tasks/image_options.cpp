#include "tasks/image_options.h"

#include "base/error.h"
#include "nn/module.h"
#include "tasks/data_options.h"
#include "tasks/task_def.h"

namespace hearth::tasks {

int64_t num_classes_of(const recipe::Recipe& recipe) {
  return recipe.model.num_classes > 0 ? recipe.model.num_classes
                                      : std::ssize(task_of(recipe).classes(recipe));
}

models::ModelOptions model_options(const recipe::Recipe& recipe) {
  return {.name = recipe.model.name,
          .num_classes = num_classes_of(recipe),
          .channels = recipe.data.channels,
          .image_size = recipe.data.image_size,
          .hidden = recipe.model.hidden,
          .dropout = recipe.model.dropout,
          .width = recipe.model.width};
}

std::optional<models::ModelOptions> teacher_options(const Job& job) {
  if (!job.image_teacher) return std::nullopt;
  return model_options(*job.image_teacher);
}

data::PixelOptions pixel_options(const recipe::Recipe& recipe) {
  const recipe::Data& data = recipe.data;
  return {.augment = {.crop_padding = data.crop_padding, .flip = data.flip, .jitter = data.jitter},
          .mean = data.mean,
          .std = data.std};
}

std::shared_ptr<data::ImageCacheBudget> image_budget(const recipe::Recipe& recipe) {
  const int64_t bytes = recipe.data.keep_images / recipe.devices;
  return bytes > 0 ? std::make_shared<data::ImageCacheBudget>(bytes) : nullptr;
}

data::LoaderOptions image_loader_options(const recipe::Recipe& recipe) {
  data::LoaderOptions options = loader_options(recipe);
  if (recipe.data.drop_last != recipe::DropLast::automatic || recipe.train.batch == 1) return options;
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::train, recipe.seed);
  builder.freeze(recipe.train.freeze);
  try {
    task_of(recipe).objective(Job(recipe))->build(builder, {.num_rows = 1});
  } catch (const UserError&) {
    // The model probably rejected a single row (batch norm). Other errors are reported when the graph is
    // built for training.
    options.min_batch = 2;
  }
  return options;
}

}  // namespace hearth::tasks
