#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "tasks/data_options.h"
#include "tasks/image_options.h"
#include "tasks/segment/mask_writer.h"
#include "tasks/segment/segment_task.h"
#include "tasks/segment/segmenter.h"
#include "tasks/stratified_indices.h"
#include "tasks/task_def.h"

namespace hearth::tasks {
namespace {

std::vector<MaskLoss> mask_losses(const recipe::Recipe& recipe) {
  const std::vector<std::string> names = {"cross_entropy", "dice", "focal"};
  std::vector<MaskLoss> losses;
  for (const std::string& name : recipe.segment.loss) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      user_error("expected segment.loss to be some of {}, got '{}'{}", fmt::join(names, ", "), name,
                 did_you_mean(name, names));
    }
    losses.push_back(static_cast<MaskLoss>(found - names.begin()));
  }
  if (losses.empty()) user_error("segment.loss is empty; set segment.loss=cross_entropy");
  return losses;
}

SegmentTaskOptions segment_options(const recipe::Recipe& recipe) {
  const recipe::Data& data = recipe.data;
  if (data.scale.size() != 2) {
    user_error("expected two factors in data.scale, got {}; try data.scale=[0.5,2]", data.scale.size());
  }
  SegmentTaskOptions made{.model = model_options(recipe),
                          .train = mask_options(recipe, "train"),
                          .held_out = mask_options(recipe, "test"),
                          .loader = image_loader_options(recipe),
                          .rows = {.size = data.image_size,
                                   .resizes = data.resize,
                                   .min_scale = static_cast<double>(data.scale[0]),
                                   .max_scale = static_cast<double>(data.scale[1]),
                                   .pixels = pixel_options(recipe),
                                   .class_weights = recipe.segment.weights},
                          .class_weights = recipe.segment.class_weights,
                          .balance = recipe.data.balance};
  made.train.cache_budget = made.held_out.cache_budget = image_budget(recipe);
  return made;
}

std::vector<std::string> classes_of(recipe::Recipe recipe) {
  recipe.data.bad_records = recipe::BadRecords::refuse;  // Decodes no images to find unreadable ones.
  std::vector<std::string> names;
  const auto masks = data::open_masks(mask_options(recipe, "train"));
  for (const data::MaskClass& one : masks->classes()) names.push_back(one.name);
  return names;
}

/// For data.kind=masks, fills in data.class_numbers, and also the classes if model.num_classes is 0: from the
/// recipe of the existing run `trained` if it used the same data, otherwise by reading all masks
/// (data::decide_masks).
std::vector<std::string> decide_mask_numbers(recipe::Recipe& recipe, const recipe::Recipe* trained) {
  if (recipe.data.kind != "masks" || !recipe.data.class_numbers.empty()) return {};
  if (trained != nullptr && trained->data.path == recipe.data.path)
    recipe.data.class_numbers = trained->data.class_numbers;
  if (!recipe.data.class_numbers.empty()) return {};
  data::MaskDecision decision =
      data::decide_masks(mask_options(recipe, "train"), mask_options(recipe, "test"));
  recipe.data.class_numbers = std::move(decision.class_numbers);
  if (recipe.model.num_classes == 0) {
    recipe.model.num_classes = std::ssize(decision.class_names);
    recipe.model.class_names = std::move(decision.class_names);
  }
  return std::move(decision.notes);
}

void read_pixels(const recipe::Recipe& recipe, TakePixels take) {
  const auto images = data::open_masks(mask_options(recipe, "train"));
  data::Image image, mask;
  for (const int64_t index : stratified_indices(kMaxMeasured, images->size())) {
    images->read(index, image, mask);
    take(image.pixels, 3);
  }
}

std::unique_ptr<Task> open(const Job& job, int /*device*/) {
  return std::make_unique<SegmentTask>(segment_options(job.recipe));
}

void check_masks(const Job& job, const char* split, const DataReport& report) {
  const recipe::Recipe& recipe = job.recipe;
  const auto images = data::open_masks(mask_options(recipe, split));
  const data::MaskCheck check = data::check_masks(*images);
  report.line(
      fmt::format("{}: {} images with masks, {} classes", split, check.num_images, check.classes.size()));
  report.notes(images->notes());
  const int64_t all = std::accumulate(check.pixels.begin(), check.pixels.end(), check.unlabeled);
  const auto count = [&](const std::string& name, int64_t pixels) {
    report.line(
        fmt::format("  {:<20} {} pixels ({:.2f}%)", name, pixels,
                    100.0 * static_cast<double>(pixels) / static_cast<double>(std::max<int64_t>(all, 1))));
  };
  for (size_t i = 0; i < check.pixels.size(); ++i) count(check.classes[i].name, check.pixels[i]);
  count("unlabeled", check.unlabeled);
  report.refuse(check.faults, check.num_images, split);
}

ExportMetadata exported(const recipe::Recipe& recipe, const fs::path& run) {
  ExportMetadata facts{
      .pixels = pixel_options(recipe), .names = {}, .fit = recipe.data.resize ? "stretch" : "window"};
  for (const data::MaskClass& each : data::read_class_table(run / kClassTable))
    facts.names.push_back(each.name);
  return facts;
}

std::unique_ptr<Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths) {
  MaskInput input{.size = recipe.data.image_size,
                  .resizes = recipe.data.resize,
                  .pixels = pixel_options(recipe),
                  .num_classes = recipe.model.num_classes,
                  .exif = recipe.data.exif};
  input.pixels.augment = {};
  if (recipe.segment.class_weights != recipe::ClassWeights::none)
    input.class_weights.assign(static_cast<size_t>(recipe.model.num_classes), 1);
  return std::make_unique<MaskWriter>(input, data::read_class_table(paths.run / kClassTable), paths.out);
}

std::shared_ptr<const engine::Objective> objective_of(const Job& job) {
  const recipe::Recipe& recipe = job.recipe;
  return segmenter({.model = model_options(recipe),
                    .losses = mask_losses(recipe),
                    .has_class_weights = recipe.segment.class_weights != recipe::ClassWeights::none,
                    .distill = recipe.distill,
                    .teacher = teacher_options(job),
                    .outputs_probabilities = !recipe.data.resize});
}

}  // namespace

extern const TaskDef segment_task;
const TaskDef segment_task = {.name = "segment",
                              .owns =
                                  [](const recipe::Recipe& recipe) {
                                    return models::find_model(recipe.model.name).purpose ==
                                           models::Purpose::segment;
                                  },
                              .objective = objective_of,
                              .open = open,
                              .classes = [](const recipe::Recipe& recipe) { return classes_of(recipe); },
                              .planned_classes = 21,  // PASCAL VOC
                              .fill_in = decide_mask_numbers,
                              .read_pixels = read_pixels,
                              .check_images = check_masks,
                              .exported = exported,
                              .predictor = open_predictor,
                              .distills = true};

}  // namespace hearth::tasks
