#include "run/from_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "data/picture_cache.h"
#include "data/shapes.h"
#include "engine/gpu_options.h"
#include "exec/device/gpu_choice.h"
#include "hub/adapter.h"
#include "hub/denoiser_adapter.h"
#include "hub/denoiser_config.h"
#include "hub/open_weights.h"
#include "io/weight_files.h"
#include "ops/matmul/quantized.h"
#include "run/device_options.h"
#include "run/from_diffuse_recipe.h"
#include "run/update_options.h"
#include "tasks/classify/class_predictor.h"
#include "tasks/classify/classifier.h"
#include "tasks/classify/image_task.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/detect/detect_files.h"
#include "tasks/detect/detect_task.h"
#include "tasks/language/language_model.h"
#include "tasks/preference/dpo.h"
#include "tasks/preference/preference_task.h"
#include "tasks/segment/mask_files.h"
#include "tasks/segment/segment_task.h"
#include "tasks/segment/segmenter.h"
#include "text/chat.h"

namespace hearth::run {
namespace {

/// Of data.kind, in the order of data::BoxFormat.
constexpr std::string_view kBoxKinds[] = {"boxes", "coco",    "voc", "yolo",    "label_studio",
                                          "cvat",  "labelme", "csv", "createml"};

recipe::Choices make_choices() {
  recipe::Choices choices{.is_gpu = exec::names_gpu};
  std::vector<std::string>& models = choices.names["model.name"];
  for (const models::ModelDef& model : models::model_list()) models.emplace_back(model.name);
  for (const tasks::DetectorDef& model : tasks::detectors()) models.emplace_back(model.name);
  std::vector<std::string>& quantizations = choices.names["adapter.quantize"] = {""};
  for (const auto kind : ops::kQuantizations) quantizations.emplace_back(ops::quantization_name(kind));
  std::vector<std::string>& kinds = choices.names["data.kind"] = tasks::image_kinds();
  for (const std::string& kind : data::mask_kinds())
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  kinds.insert(kinds.end(), std::begin(kBoxKinds), std::end(kBoxKinds));
  kinds.emplace_back(name_of(recipe::DataKind::text));
  kinds.insert(kinds.end(), {kCaptions, kKohya});
  choices.names["data.template"] = text::built_in_templates();
  choices.names["optimizer.name"] = {engine::optimizer_names().begin(), engine::optimizer_names().end()};
  return choices;
}

/// Returns the recipe's number of classes; if 0, the number of classes in the data.
int64_t num_classes_of(const recipe::Recipe& recipe) {
  return recipe.model.num_classes > 0 ? recipe.model.num_classes : std::ssize(classes_of_data(recipe));
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

data::PixelOptions pixel_options(const recipe::Recipe& recipe) {
  const recipe::Data& data = recipe.data;
  return {.augment = {.crop_padding = data.crop_padding, .flip = data.flip, .jitter = data.jitter},
          .mean = data.mean,
          .std = data.std};
}

/// Throws a UserError if data.kind does not label each image with a class.
void check_is_labeled(const recipe::Recipe& recipe) {
  const std::string& kind = recipe.data.kind;
  const bool has_boxes = std::ranges::find(kBoxKinds, kind) != std::end(kBoxKinds);
  if (kind != "masks" && !has_boxes) return;
  user_error("expected a model of {} for data.kind={}, got {}; try model.name={}",
             has_boxes ? "detection" : "segmentation", kind, recipe.model.name,
             has_boxes ? "yolox_s" : "unet");
}

/// What this device may keep of all pictures; null: nothing.
std::shared_ptr<data::PictureBudget> picture_budget(const recipe::Recipe& recipe) {
  const int64_t bytes = recipe.data.keep_pictures / recipe.devices;
  return bytes > 0 ? std::make_shared<data::PictureBudget>(bytes) : nullptr;
}

/// Returns loader options with the model's min batch: 2 if one row leaves a batch norm a single value per
/// channel (DeepLab's pooled features, mlp).
data::LoaderOptions image_loader_options(const recipe::Recipe& recipe) {
  data::LoaderOptions options = loader_options(recipe);
  if (recipe.data.drop_last != recipe::DropLast::automatic || recipe.train.batch == 1) return options;
  ir::Graph graph;
  nn::Builder builder(graph, nn::Builder::Mode::train, recipe.seed);
  builder.freeze(recipe.train.freeze);
  try {
    objective_of(recipe)->build(builder, {.num_rows = 1});
  } catch (const UserError&) {
    // Other errors are reported when the real graph is built.
    options.min_batch = 2;
  }
  return options;
}

std::vector<tasks::MaskLoss> mask_losses(const recipe::Recipe& recipe) {
  const std::vector<std::string> names = {"cross_entropy", "dice", "focal"};
  std::vector<tasks::MaskLoss> losses;
  for (const std::string& name : recipe.segment.loss) {
    const auto found = std::ranges::find(names, name);
    if (found == names.end()) {
      user_error("expected segment.loss to be some of {}, got '{}'{}", fmt::join(names, ", "), name,
                 did_you_mean(name, names));
    }
    losses.push_back(static_cast<tasks::MaskLoss>(found - names.begin()));
  }
  if (losses.empty()) user_error("expected a loss in segment.loss, got none; try segment.loss=cross_entropy");
  return losses;
}

tasks::SegmentTaskOptions segment_options(const recipe::Recipe& recipe) {
  const recipe::Data& data = recipe.data;
  if (data.scale.size() != 2) {
    user_error("expected two factors in data.scale, got {}; try data.scale=[0.5,2]", data.scale.size());
  }
  tasks::SegmentTaskOptions made{.model = model_options(recipe),
                                 .train = mask_options(recipe, "train"),
                                 .held_out = mask_options(recipe, "test"),
                                 .loader = image_loader_options(recipe),
                                 .rows = {.size = data.image_size,
                                          .resizes = data.resize,
                                          .least_scale = static_cast<double>(data.scale[0]),
                                          .most_scale = static_cast<double>(data.scale[1]),
                                          .pixels = pixel_options(recipe),
                                          .class_weights = recipe.segment.weights},
                                 .class_weights = recipe.segment.class_weights,
                                 .balance = recipe.data.balance};
  made.train.keep = made.held_out.keep = picture_budget(recipe);
  return made;
}

tasks::DetectorOptions detector_options(const recipe::Recipe& recipe) {
  return {.model = recipe.model.name,
          .num_classes = num_classes_of(recipe),
          .image_size = recipe.data.image_size,
          .max_boxes = recipe.detect.max_boxes,
          .width = recipe.model.width,
          .frozen_norm = recipe.model.frozen_norm};
}

tasks::NmsOptions nms_options(const recipe::Recipe& recipe) {
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
          .scale_least = static_cast<double>(detect.scale[0]),
          .scale_most = static_cast<double>(detect.scale[1]),
          .flip = recipe.data.flip ? 0.5 : 0.0,
          .hsv = detect.hsv ? 1.0 : 0.0};
}

tasks::DetectTaskOptions detect_options(const recipe::Recipe& recipe) {
  const Extent size = recipe.data.image_size;
  if (!recipe.detect.sizes.empty() && size.height != size.width)
    user_error("expected a square data.image_size for detect.sizes, got [{}, {}]; try data.image_size={}",
               size.width, size.height, size.longer());
  return {.detector = detector_options(recipe),
          .train = boxed_pictures(recipe, "train"),
          .held_out = boxed_pictures(recipe, "test"),
          .loader = image_loader_options(recipe),
          .rows = {.size = size,
                   .sides = recipe.detect.sizes,
                   .is_training = true,
                   .augment = box_augment(recipe),
                   .plain_from_epoch = std::max<int64_t>(0, recipe.train.epochs - recipe.detect.plain_epochs),
                   .max_boxes = recipe.detect.max_boxes,
                   .keep = picture_budget(recipe)},
          .nms = nms_options(recipe),
          .shown_score = recipe.detect.shown_score,
          .balance = recipe.data.balance};
}

}  // namespace

const recipe::Choices& recipe_choices() {
  static const recipe::Choices choices = make_choices();
  return choices;
}

recipe::Recipe load_recipe(const fs::path& path, std::span<const std::string> overrides) {
  return recipe::load_recipe(path, recipe_choices(), overrides);
}

recipe::Recipe parse_recipe(const std::string& yaml, const std::string& where,
                            std::span<const std::string> overrides) {
  return recipe::parse_recipe(yaml, where, recipe_choices(), overrides);
}

namespace {

/// Reads the labels of a split without decoding images.
data::BoxedPictures read_boxed_pictures(const recipe::Recipe& recipe, const std::string& split) {
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
    return data::shape_boxes(data::series_of(recipe.seed, split),
                             split == "test" ? data.val_count : data.count, data.image_size);
  }
  user_error("expected data.kind shapes, {} for detection, got {}; try data.kind=boxes",
             fmt::join(kBoxKinds, ", "), data.kind);
}

}  // namespace

data::BoxedPictures boxed_pictures(const recipe::Recipe& recipe, const std::string& split) {
  data::BoxedPictures set = read_boxed_pictures(recipe, split);
  if (recipe.data.bad_records == recipe::BadRecords::skip)
    data::leave_out_bad(set, recipe::num_threads(recipe));
  return set;
}

Purpose purpose_of(const recipe::Recipe& recipe) {
  if (recipe::makes_pictures(recipe)) return Purpose::diffuse;
  if (recipe::is_text(recipe)) return Purpose::text;
  if (tasks::find_detector(recipe.model.name) != nullptr) return Purpose::detect;
  const models::ModelDef& model = models::find_model(recipe.model.name);
  return model.purpose == models::Purpose::segment ? Purpose::segment : Purpose::classify;
}

std::vector<std::string> classes_of_data(const recipe::Recipe& given) {
  const Purpose purpose = purpose_of(given);
  if (purpose == Purpose::detect) return read_boxed_pictures(given, "train").class_names;
  recipe::Recipe recipe = given;
  recipe.data.bad_records = recipe::BadRecords::refuse;  // No image is decoded to leave some out.
  if (purpose == Purpose::classify) {
    check_is_labeled(recipe);
    return tasks::open_any_dataset(dataset_options(recipe, "train"), recipe.model.num_classes)->class_names();
  }
  HEARTH_CHECK(purpose == Purpose::segment);
  std::vector<std::string> names;
  const auto masks = data::open_masks(mask_options(recipe, "train"));
  for (const data::MaskClass& one : masks->classes()) names.push_back(one.name);
  return names;
}

tasks::TextOptions text_options(const recipe::Recipe& recipe) {
  return {.model = recipe.model, .data = recipe.data, .pairs = recipe::has_pairs(recipe)};
}

tasks::TextTaskOptions text_task_options(const recipe::Recipe& recipe) {
  return {.text = text_options(recipe), .batch = recipe.train.batch, .adapts = recipe.adapter.wanted()};
}

std::shared_ptr<const engine::Objective> objective_of(const recipe::Recipe& recipe) {
  const Purpose purpose = purpose_of(recipe);
  if (purpose == Purpose::diffuse) return denoiser_of(recipe);
  if (purpose == Purpose::detect)
    return tasks::find_detector(recipe.model.name)->open(detector_options(recipe))->objective();
  if (purpose == Purpose::segment) {
    return tasks::segmenter({.model = model_options(recipe),
                             .losses = mask_losses(recipe),
                             .has_class_weights = recipe.segment.class_weights != recipe::ClassWeights::none,
                             .wants_probabilities = !recipe.data.resize});
  }
  if (purpose == Purpose::classify) {
    return tasks::classifier(
        {.model = model_options(recipe), .label_smoothing = recipe.train.label_smoothing});
  }
  const models::DecoderConfig config = models::read_decoder_config(recipe.model.config_file());
  if (config.tied_head) hub::check_untied(hub::builder_adapter(recipe.adapter));
  const tasks::LanguageModelOptions model{
      .config = config, .context = recipe.data.context, .documents = recipe::has_documents(recipe)};
  return recipe::has_pairs(recipe) ? tasks::dpo(model, recipe.dpo) : tasks::language_model(model);
}

engine::EngineOptions engine_options(const recipe::Recipe& recipe, int device, int64_t num_workers) {
  const recipe::Exchange& exchange = recipe.exchange;
  engine::EngineOptions options{.objective = objective_of(recipe),
                                .optimizer = optimizer_options(recipe),
                                .adapter = recipe::makes_pictures(recipe)
                                               ? hub::denoiser_adapter(recipe.adapter)
                                               : hub::builder_adapter(recipe.adapter),
                                .frozen = recipe.train.freeze,
                                .batch = recipe.train.batch,
                                .accumulate = recipe.train.accumulate,
                                .shards = recipe.train.shards,
                                .num_workers = num_workers > 0 ? num_workers : recipe.devices,
                                .parallel = recipe.parallel,
                                .compress = {.way = exchange.compress},
                                .local = {.steps = exchange.local_steps,
                                          .outer_lr = exchange.outer_lr,
                                          .outer_momentum = exchange.outer_momentum},
                                .precision = recipe.precision,
                                .seed = recipe.seed,
                                .num_threads = recipe::num_threads(recipe),
                                .budget_bytes = recipe.memory,
                                .offload = {.states = recipe.offload.states,
                                            .weights = recipe.offload.weights,
                                            .activations = recipe.offload.activations},
                                .passes_off = recipe.passes.off};
  std::erase(options.passes_off, "winograd");
  if (recipe.device != recipe::kCpu) engine::use_gpu(options, gpu_of(recipe, device), recipe.self_test);
  return options;
}

void check_config_file(const recipe::Recipe& recipe) {
  const std::string& config = recipe.model.config;
  if (!config.empty() && !path_exists(recipe.model.config_file()))
    user_error("there is no file '{}'; set model.config to the config.json of a model", config);
}

void check_first_weights(const recipe::Recipe& recipe) {
  check_config_file(recipe);
  const std::string& model = recipe.init.empty() ? recipe.model.path : recipe.init;
  if (recipe::is_text(recipe)) models::read_decoder_config(recipe.model.config_file());
  if (recipe::makes_pictures(recipe)) hub::denoiser_config(recipe.model);
  if (!model.empty()) hub::open_weights(model);
  if (recipe.adapter.path.empty()) return;
  if (recipe::makes_pictures(recipe)) {
    const hub::DenoiserAdapter opened(recipe.adapter.path);
    return;
  }
  hub::read_adapter_config(recipe.adapter.path);
  io::WeightFiles{hub::adapter_weights(recipe.adapter.path)};
}

std::unique_ptr<tasks::Task> open_task(const recipe::Recipe& recipe, int device) {
  const Purpose purpose = purpose_of(recipe);
  if (recipe.data.balance && recipe::is_text(recipe))
    user_error("expected a model of images for data.balance=true, got {}; try data.balance=false",
               recipe::model_name(recipe));
  if (purpose == Purpose::diffuse)
    return std::make_unique<tasks::DiffuseTask>(diffuse_options(recipe, device));
  if (recipe::has_pairs(recipe))
    return std::make_unique<tasks::PreferenceTask>(text_task_options(recipe), recipe.dpo.beta);
  if (recipe::is_text(recipe)) return std::make_unique<tasks::TextTask>(text_task_options(recipe));
  if (purpose == Purpose::detect) return std::make_unique<tasks::DetectTask>(detect_options(recipe));
  if (purpose == Purpose::segment) return std::make_unique<tasks::SegmentTask>(segment_options(recipe));
  check_is_labeled(recipe);
  tasks::ImageTaskOptions options{.model = model_options(recipe),
                                  .train = dataset_options(recipe, "train"),
                                  .held_out = dataset_options(recipe, "test"),
                                  .loader = image_loader_options(recipe),
                                  .pixels = pixel_options(recipe),
                                  .balance = recipe.data.balance};
  options.train.keep = options.held_out.keep = picture_budget(recipe);
  return std::make_unique<tasks::ImageTask>(options);
}

hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run) {
  refuse_pictures(recipe, run);
  const Purpose purpose = purpose_of(recipe);
  data::PixelOptions pixels = pixel_options(recipe);
  std::vector<std::string> names;
  if (purpose == Purpose::detect) {
    pixels = tasks::find_detector(recipe.model.name)->open(detector_options(recipe))->pixels();
    names = tasks::read_detection_classes(run / kDetectionClasses).names;
  } else if (purpose == Purpose::segment) {
    for (const data::MaskClass& each : data::read_class_table(run / kClassTable)) names.push_back(each.name);
  } else {
    names = recipe.model.class_names;
  }
  const auto list = [](const std::vector<float>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
  };
  constexpr std::array kTasks = {"classify", "segment", "detect"};
  const std::string fit = purpose == Purpose::detect                           ? "letterbox 114"
                          : purpose == Purpose::segment && !recipe.data.resize ? "window"
                                                                               : "stretch";
  return {.out = {},
          .name = recipe.model.name,
          .metadata = {{"task", kTasks.at(static_cast<size_t>(purpose))},
                       {"names", nlohmann::json(names).dump()},
                       {"mean", list(pixels.mean)},
                       {"std", list(pixels.std)},
                       {"color", recipe.data.channels == 1 ? "gray" : "RGB"},
                       {"pixels", "(value / 255 - mean) / std"},
                       {"fit", fit}}};
}

std::unique_ptr<tasks::Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths) {
  if (recipe::is_text(recipe))
    user_error("expected a run on pictures, got '{}', a language model's; try hearth generate {}",
               paths.run.string(), paths.run.string());
  refuse_pictures(recipe, paths.run);
  if (purpose_of(recipe) == Purpose::detect) {
    return std::make_unique<tasks::DetectFiles>(
        tasks::find_detector(recipe.model.name)->open(detector_options(recipe)),
        tasks::read_detection_classes(paths.run / kDetectionClasses),
        tasks::DetectFilesOptions{.size = recipe.data.image_size,
                                  .nms = nms_options(recipe),
                                  .shown_score = recipe.detect.shown_score,
                                  .exif = recipe.data.exif},
        paths.out);
  }
  if (purpose_of(recipe) == Purpose::segment) {
    tasks::MaskInput input{.size = recipe.data.image_size,
                           .resizes = recipe.data.resize,
                           .pixels = pixel_options(recipe),
                           .num_classes = recipe.model.num_classes,
                           .exif = recipe.data.exif};
    input.pixels.augment = {};
    if (recipe.segment.class_weights != recipe::ClassWeights::none)
      input.class_weights.assign(static_cast<size_t>(recipe.model.num_classes), 1);
    return std::make_unique<tasks::MaskFiles>(input, data::read_class_table(paths.run / kClassTable),
                                              paths.out);
  }
  return std::make_unique<tasks::ClassPredictor>(model_options(recipe), pixel_options(recipe),
                                                 recipe.model.class_names, paths.weights, recipe.data.exif);
}

}  // namespace hearth::run
