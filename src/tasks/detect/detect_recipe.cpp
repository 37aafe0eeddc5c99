#include "tasks/detect/detect_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/run_files.h"
#include "data/shapes.h"
#include "tasks/data_options.h"
#include "tasks/detect/detect_task.h"
#include "tasks/detect/detection_writer.h"
#include "tasks/image_options.h"
#include "tasks/task_def.h"

namespace hearth::tasks {
namespace {

/// Values of data.kind, in the order of data::BoxFormat.
constexpr std::string_view kBoxKinds[] = {"boxes", "coco",    "voc", "yolo",    "label_studio",
                                          "cvat",  "labelme", "csv", "createml"};

/// Reads the labels of a split without decoding images.
data::BoxedImages read_boxed_images(const recipe::Recipe& recipe, const std::string& split) {
  const recipe::Data& data = recipe.data;
  const auto format = std::ranges::find(kBoxKinds, data.kind);
  if (format != std::end(kBoxKinds)) {
    return data::read_boxes(data.path, split,
                            {.format = static_cast<data::BoxFormat>(format - std::begin(kBoxKinds)),
                             .allow_outside = data.allow_outside,
                             .exif = recipe.data.exif,
                             .skip_bad = data.bad_records == recipe::BadRecords::skip,
                             .num_classes = recipe.model.num_classes,
                             .class_names = recipe.model.class_names});
  }
  if (data.kind == name_of(recipe::DataKind::shapes)) {
    return data::shape_boxes(data::seed_of_split(recipe.seed, split),
                             split == "test" ? data.val_count : data.count, data.image_size);
  }
  user_error("expected data.kind shapes, {} for detection, got {}; try data.kind=boxes",
             fmt::join(kBoxKinds, ", "), data.kind);
}

/// `teacher`: recipe of the teacher, if there is one.
DetectorOptions detector_options(const recipe::Recipe& recipe,
                                 const std::optional<recipe::Recipe>& teacher = {}) {
  return {.model = recipe.model.name,
          .num_classes = num_classes_of(recipe),
          .image_size = recipe.data.image_size,
          .max_boxes = recipe.detect.max_boxes,
          .width = recipe.model.width,
          .frozen_norm = recipe.model.frozen_norm,
          .distill = recipe.distill,
          .teacher = teacher ? std::make_shared<const DetectorOptions>(detector_options(*teacher)) : nullptr};
}

NmsOptions nms_options(const recipe::Recipe& recipe) {
  return {.score = recipe.detect.score,
          .overlap = recipe.detect.nms,
          .max_detections = recipe.detect.max_detections};
}

data::BoxAugment box_augment(const recipe::Recipe& recipe) {
  const recipe::Detect& detect = recipe.detect;
  if (detect.scale.size() != 2)
    user_error("expected two factors in detect.scale, got {}; try detect.scale=[0.5,1.5]",
               detect.scale.size());
  return {.mosaic = detect.mosaic,
          .mixup = detect.mixup,
          .degrees = detect.degrees,
          .translate = detect.translate,
          .shear = detect.shear,
          .scale_min = static_cast<double>(detect.scale[0]),
          .scale_max = static_cast<double>(detect.scale[1]),
          .flip = recipe.data.flip ? 0.5 : 0.0,
          .hsv = detect.hsv ? 1.0 : 0.0};
}

DetectTaskOptions detect_options(const recipe::Recipe& recipe) {
  const Extent size = recipe.data.image_size;
  if (!recipe.detect.sizes.empty() && size.height != size.width)
    user_error("expected a square data.image_size for detect.sizes, got [{}, {}]; try data.image_size={}",
               size.width, size.height, size.longer());
  return {.detector = detector_options(recipe),
          .train = boxed_images(recipe, "train"),
          .held_out = boxed_images(recipe, "test"),
          .loader = image_loader_options(recipe),
          .rows = {.size = size,
                   .sides = recipe.detect.sizes,
                   .is_training = true,
                   .augment = box_augment(recipe),
                   .plain_from_epoch = std::max<int64_t>(0, recipe.train.epochs - recipe.detect.plain_epochs),
                   .max_boxes = recipe.detect.max_boxes,
                   .cache_budget = image_budget(recipe)},
          .nms = nms_options(recipe),
          .shown_score = recipe.detect.shown_score,
          .balance = recipe.data.balance};
}

std::unique_ptr<Detector> detector_of(const recipe::Recipe& recipe,
                                      const std::optional<recipe::Recipe>& teacher = {}) {
  return find_detector(recipe.model.name)->open(detector_options(recipe, teacher));
}

std::unique_ptr<Task> open(const Job& job, int /*device*/) {
  return std::make_unique<DetectTask>(detect_options(job.recipe));
}

ExportMetadata exported(const recipe::Recipe& recipe, const fs::path& run) {
  return {.pixels = detector_of(recipe)->pixels(),
          .names = read_detection_classes(run / kDetectionClasses).names,
          .fit = "letterbox 114"};
}

std::unique_ptr<Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths) {
  const DetectionWriterOptions options{.size = recipe.data.image_size,
                                       .nms = nms_options(recipe),
                                       .shown_score = recipe.detect.shown_score,
                                       .exif = recipe.data.exif};
  return std::make_unique<DetectionWriter>(
      detector_of(recipe), read_detection_classes(paths.run / kDetectionClasses), options, paths.out);
}

void check_boxes(const Job& job, const char* split, const DataReport& report) {
  const recipe::Recipe& recipe = job.recipe;
  const data::BoxedImages set = boxed_images(recipe, split);
  const data::BoxCheck check = data::check_boxes(set);
  report.line(fmt::format("{}: {} images, {} classes, {} images without boxes", split, set.images.size(),
                          set.class_names.size(), check.images_without_boxes));
  for (size_t i = 0; i < check.classes.size(); ++i) {
    const data::BoxCheck::Class& one = check.classes[i];
    report.line(fmt::format("  {:<20} {} boxes on {} images: {} small, {} medium, {} large",
                            set.class_names[i], one.boxes, one.images, one.small, one.medium, one.large));
  }
  if (check.rotated_upright > 0)
    report.notes({fmt::format(
        "{} images are rotated by their EXIF orientation; data.exif=ignore keeps the stored pixels",
        check.rotated_upright)});
  if (check.kept_as_stored > 0)
    report.notes(
        {fmt::format("{} images have an EXIF orientation that is not applied because their boxes refer to "
                     "the stored pixels",
                     check.kept_as_stored)});
  report.notes(set.notes);
  report.refuse(check.faults, std::ssize(set.images), split);
}

}  // namespace

std::span<const std::string_view> box_kinds() { return kBoxKinds; }

data::BoxedImages boxed_images(const recipe::Recipe& recipe, const std::string& split) {
  data::BoxedImages set = read_boxed_images(recipe, split);
  if (recipe.data.bad_records == recipe::BadRecords::skip)
    data::remove_unreadable(set, recipe::num_threads(recipe));
  return set;
}

extern const TaskDef detect_task;
const TaskDef detect_task = {
    .name = "detect",
    .owns = [](const recipe::Recipe& recipe) { return find_detector(recipe.model.name) != nullptr; },
    .objective = [](const Job& job) { return detector_of(job.recipe, job.image_teacher)->objective(); },
    .open = open,
    .classes = [](const recipe::Recipe& recipe) { return read_boxed_images(recipe, "train").class_names; },
    .planned_classes = 80,  // as COCO
    .check_images = check_boxes,
    .exported = exported,
    .predictor = open_predictor,
    .distills = true};

}  // namespace hearth::tasks
