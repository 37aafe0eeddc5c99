#include <algorithm>

#include "base/error.h"
#include "tasks/classify/class_predictor.h"
#include "tasks/classify/classifier.h"
#include "tasks/classify/image_task.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/data_options.h"
#include "tasks/detect/detect_recipe.h"
#include "tasks/image_options.h"
#include "tasks/stratified_indices.h"
#include "tasks/task_def.h"

namespace hearth::tasks {
namespace {

/// Throws a UserError if data.kind has masks or boxes instead of a class per image.
void check_is_labeled(const recipe::Recipe& recipe) {
  const std::string& kind = recipe.data.kind;
  const bool has_boxes = std::ranges::find(box_kinds(), kind) != box_kinds().end();
  if (kind != "masks" && !has_boxes) return;
  user_error("data.kind={1} needs a {0} model, but model.name is {2}; set model.name={3}",
             has_boxes ? "detection" : "segmentation", kind, recipe.model.name,
             has_boxes ? "yolox_s" : "unet");
}

std::unique_ptr<Task> open(const Job& job, int /*device*/) {
  const recipe::Recipe& recipe = job.recipe;
  check_is_labeled(recipe);
  ImageTaskOptions options{.model = model_options(recipe),
                           .train = dataset_options(recipe, "train"),
                           .held_out = dataset_options(recipe, "test"),
                           .loader = image_loader_options(recipe),
                           .pixels = pixel_options(recipe),
                           .balance = recipe.data.balance};
  options.train.cache_budget = options.held_out.cache_budget = image_budget(recipe);
  return std::make_unique<ImageTask>(options);
}

std::vector<std::string> classes_of(recipe::Recipe recipe) {
  recipe.data.bad_records = recipe::BadRecords::refuse;  // Decodes no images to find unreadable ones.
  check_is_labeled(recipe);
  return open_any_dataset(dataset_options(recipe, "train"), recipe.model.num_classes)->class_names();
}

void read_pixels(const recipe::Recipe& recipe, TakePixels take) {
  const auto dataset = open_any_dataset(dataset_options(recipe, "train"), recipe.model.num_classes);
  if (dataset->holds_floats())
    user_error(
        "data.normalize=dataset is for images, but data.kind=tensors is not normalized; remove "
        "data.normalize");
  std::vector<uint8_t> pixels(static_cast<size_t>(dataset->image_size().num_pixels() * dataset->channels()));
  int32_t label = 0;
  for (const int64_t index : stratified_indices(kMaxMeasured, dataset->size())) {
    dataset->read(index, pixels.data(), &label);
    take(pixels, dataset->channels());
  }
}

std::shared_ptr<const engine::Objective> objective_of(const Job& job) {
  const recipe::Recipe& recipe = job.recipe;
  return classifier({.model = model_options(recipe),
                     .label_smoothing = recipe.train.label_smoothing,
                     .distill = recipe.distill,
                     .teacher = teacher_options(job)});
}

ExportMetadata exported(const recipe::Recipe& recipe, const fs::path& /*run*/) {
  return {.pixels = pixel_options(recipe), .names = recipe.model.class_names, .fit = "stretch"};
}

std::unique_ptr<Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths) {
  return std::make_unique<ClassPredictor>(model_options(recipe), pixel_options(recipe),
                                          recipe.model.class_names, paths.weights, recipe.data.exif);
}

}  // namespace

extern const TaskDef classify_task;
const TaskDef classify_task = {
    .name = "classify",
    .owns = [](const recipe::Recipe&) { return true; },
    .objective = objective_of,
    .open = open,
    .classes = [](const recipe::Recipe& recipe) { return classes_of(recipe); },
    .planned_classes = 1000,  // ImageNet
    .read_pixels = read_pixels,
    .check_images = [](const Job& job, const char* split,
                       const DataReport& report) { check_labeled_images(job.recipe, split, report); },
    .exported = exported,
    .predictor = open_predictor,
    .distills = true};

}  // namespace hearth::tasks
