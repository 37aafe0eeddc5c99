#include "run/from_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/error.h"
#include "base/text.h"
#include "engine/gpu_options.h"
#include "exec/device/gpu_choice.h"
#include "hub/adapter.h"
#include "io/weight_files.h"
#include "ops/matmul/quantized.h"
#include "tasks/classify/class_predictor.h"
#include "tasks/classify/classifier.h"
#include "tasks/classify/image_task.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/language/language_model.h"
#include "tasks/preference/dpo.h"
#include "tasks/preference/preference_task.h"
#include "tasks/segment/mask_files.h"
#include "tasks/segment/segment_task.h"
#include "tasks/segment/segmenter.h"
#include "text/chat.h"

namespace hearth::run {
namespace {

recipe::Choices make_choices() {
  recipe::Choices choices{.is_gpu = exec::names_gpu};
  std::vector<std::string>& models = choices.names["model.name"];
  for (const models::ModelDef& model : models::model_list()) models.emplace_back(model.name);
  std::vector<std::string>& quantizations = choices.names["adapter.quantize"] = {""};
  for (const auto kind : ops::kQuantizations) quantizations.emplace_back(ops::quantization_name(kind));
  std::vector<std::string>& kinds = choices.names["data.kind"] = tasks::image_kinds();
  for (const std::string& kind : data::mask_kinds())
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  kinds.emplace_back(recipe::name_of(recipe::DataKind::text));
  choices.names["data.template"] = text::built_in_templates();
  choices.names["optimizer.name"] = {engine::optimizer_names().begin(), engine::optimizer_names().end()};
  return choices;
}

models::ModelOptions model_options(const recipe::Recipe& recipe) {
  return {.name = recipe.model.name,
          .num_classes = recipe.model.num_classes,
          .channels = recipe.data.channels,
          .image_size = recipe.data.image_size,
          .hidden = recipe.model.hidden,
          .dropout = recipe.model.dropout,
          .width = recipe.model.width};
}

data::LoaderOptions loader_options(const recipe::Recipe& recipe) {
  return {.batch = recipe.train.batch,
          .seed = recipe.seed,
          .shuffle = recipe.data.shuffle,
          .num_threads = static_cast<int>(recipe.data.threads)};
}

data::PixelOptions pixel_options(const recipe::Recipe& recipe) {
  const recipe::Data& data = recipe.data;
  return {.augment = {.crop_padding = data.crop_padding, .flip = data.flip, .jitter = data.jitter},
          .mean = data.mean,
          .std = data.std};
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
  return {.model = model_options(recipe),
          .train = mask_options(recipe, "train"),
          .held_out = mask_options(recipe, "test"),
          .loader = loader_options(recipe),
          .rows = {.size = data.image_size,
                   .resizes = data.resize,
                   .least_scale = static_cast<double>(data.scale[0]),
                   .most_scale = static_cast<double>(data.scale[1]),
                   .pixels = pixel_options(recipe),
                   .class_weights = recipe.segment.weights},
          .class_weights = recipe.segment.class_weights};
}

engine::OptimizerOptions optimizer_options(const recipe::Recipe& recipe) {
  const recipe::Optimizer& optimizer = recipe.optimizer;
  const auto name = std::ranges::find(engine::optimizer_names(), optimizer.name);
  HEARTH_CHECK(name != engine::optimizer_names().end());
  return {.name = *name,
          .momentum = optimizer.momentum,
          .nesterov = optimizer.nesterov,
          .weight_decay = optimizer.weight_decay,
          .beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .eps = optimizer.eps,
          .clip_norm = recipe.train.clip_norm,
          .in_backward = optimizer.in_backward,
          .ema_decay = recipe.train.ema};
}

DType dtype_of(recipe::Precision precision) {
  switch (precision) {
    case recipe::Precision::bf16:
      return DType::bf16;
    case recipe::Precision::fp16:
      return DType::f16;
    case recipe::Precision::fp32:
      break;
  }
  return DType::f32;
}

engine::Parallel parallel_of(recipe::Parallel way) {
  switch (way) {
    case recipe::Parallel::zero1:
      return engine::Parallel::zero1;
    case recipe::Parallel::sharded:
      return engine::Parallel::sharded;
    case recipe::Parallel::pipeline:
      return engine::Parallel::pipeline;
    case recipe::Parallel::data:
      break;
  }
  return engine::Parallel::data;
}

passes::CompressOptions::Way way_of(recipe::Compress compress) {
  using Way = passes::CompressOptions::Way;
  switch (compress) {
    case recipe::Compress::bf16:
      return Way::bf16;
    case recipe::Compress::powersgd:
      return Way::powersgd;
    case recipe::Compress::none:
      break;
  }
  return Way::none;
}

exec::SelfTest::When when_of(recipe::SelfTest test) {
  using When = exec::SelfTest::When;
  switch (test) {
    case recipe::SelfTest::always:
      return When::always;
    case recipe::SelfTest::never:
      return When::never;
    case recipe::SelfTest::once:
      break;
  }
  return When::once;
}

exec::Record record_of(recipe::Record record) {
  switch (record) {
    case recipe::Record::always:
      return exec::Record::always;
    case recipe::Record::never:
      return exec::Record::never;
    case recipe::Record::automatic:
      break;
  }
  return exec::Record::automatic;
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

data::DatasetOptions dataset_options(const recipe::Recipe& recipe, const std::string& split) {
  const recipe::Data& data = recipe.data;
  return {.kind = data.kind,
          .path = data.path,
          .split = split,
          .image_size = data.image_size,
          .channels = data.channels,
          .count = split == "test" ? data.val_count : data.count,
          .seed = recipe.seed};
}

data::MaskOptions mask_options(const recipe::Recipe& recipe, const std::string& split) {
  const recipe::Data& data = recipe.data;
  return {.kind = data.kind,
          .path = data.path,
          .split = split,
          .image_size = data.image_size,
          .count = split == "test" ? data.val_count : data.count,
          .seed = recipe.seed,
          .num_classes = recipe.model.num_classes,
          .classes = data.classes,
          .unlabeled = data.unlabeled};
}

bool is_for(const recipe::Recipe& recipe, models::Purpose purpose) {
  return !recipe::is_text(recipe) && models::find_model(recipe.model.name).purpose == purpose;
}

tasks::TextOptions text_options(const recipe::Recipe& recipe) {
  return {.model = recipe.model, .data = recipe.data, .pairs = recipe::has_pairs(recipe)};
}

tasks::TextTaskOptions text_task_options(const recipe::Recipe& recipe) {
  return {.text = text_options(recipe), .batch = recipe.train.batch, .adapts = recipe.adapter.wanted()};
}

std::shared_ptr<const engine::Objective> objective_of(const recipe::Recipe& recipe) {
  if (is_for(recipe, models::Purpose::segment)) {
    return tasks::segmenter({.model = model_options(recipe),
                             .losses = mask_losses(recipe),
                             .has_class_weights = recipe.segment.class_weights != recipe::ClassWeights::none,
                             .wants_probabilities = !recipe.data.resize});
  }
  if (!recipe::is_text(recipe)) {
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
                                .adapter = hub::builder_adapter(recipe.adapter),
                                .batch = recipe.train.batch,
                                .accumulate = recipe.train.accumulate,
                                .shards = recipe.train.shards,
                                .num_workers = num_workers > 0 ? num_workers : recipe.devices,
                                .parallel = parallel_of(recipe.parallel),
                                .compress = {.way = way_of(exchange.compress)},
                                .local = {.steps = exchange.local_steps,
                                          .outer_lr = exchange.outer_lr,
                                          .outer_momentum = exchange.outer_momentum},
                                .precision = dtype_of(recipe.precision),
                                .seed = recipe.seed,
                                .num_threads = recipe::num_threads(recipe),
                                .budget_bytes = recipe.memory,
                                .offload = {.states = recipe.offload.states,
                                            .weights = recipe.offload.weights,
                                            .activations = recipe.offload.activations},
                                .passes_off = recipe.passes.off};
  std::erase(options.passes_off, "winograd");
  if (recipe.device != recipe::kCpu) {
    engine::use_gpu(options,
                    {.device = recipe.device,
                     .number = device,
                     .reserve_bytes = recipe.reserve,
                     .record = record_of(recipe.record)},
                    when_of(recipe.self_test));
  }
  return options;
}

void check_first_weights(const recipe::Recipe& recipe) {
  const std::string& model = recipe.init.empty() ? recipe.model.path : recipe.init;
  if (recipe::is_text(recipe)) models::read_decoder_config(recipe.model.config_file());
  if (!model.empty()) io::WeightFiles{fs::path(model)};
  if (recipe.adapter.path.empty()) return;
  hub::read_adapter_config(recipe.adapter.path);
  io::WeightFiles{hub::adapter_weights(recipe.adapter.path)};
}

std::unique_ptr<tasks::Task> open_task(const recipe::Recipe& recipe) {
  if (recipe::has_pairs(recipe))
    return std::make_unique<tasks::PreferenceTask>(text_task_options(recipe), recipe.dpo.beta);
  if (recipe::is_text(recipe)) return std::make_unique<tasks::TextTask>(text_task_options(recipe));
  if (is_for(recipe, models::Purpose::segment))
    return std::make_unique<tasks::SegmentTask>(segment_options(recipe));
  if (recipe.data.kind == "masks") {
    user_error("expected a model of segmentation for data.kind=masks, got {}; try model.name=unet",
               recipe.model.name);
  }
  return std::make_unique<tasks::ImageTask>(
      tasks::ImageTaskOptions{.model = model_options(recipe),
                              .train = dataset_options(recipe, "train"),
                              .held_out = dataset_options(recipe, "test"),
                              .loader = loader_options(recipe),
                              .pixels = pixel_options(recipe)});
}

std::unique_ptr<tasks::Predictor> open_predictor(const recipe::Recipe& recipe, const PredictionPaths& paths) {
  if (recipe::is_text(recipe))
    user_error("expected a run on pictures, got '{}', a language model's; try hearth generate {}",
               paths.run.string(), paths.run.string());
  if (is_for(recipe, models::Purpose::segment)) {
    tasks::MaskInput input{.size = recipe.data.image_size,
                           .resizes = recipe.data.resize,
                           .pixels = pixel_options(recipe),
                           .num_classes = recipe.model.num_classes};
    input.pixels.augment = {};
    if (recipe.segment.class_weights != recipe::ClassWeights::none)
      input.class_weights.assign(static_cast<size_t>(recipe.model.num_classes), 1);
    return std::make_unique<tasks::MaskFiles>(input, data::read_class_table(paths.run / tasks::kClassTable),
                                              paths.out);
  }
  const auto classes = tasks::open_any_dataset(dataset_options(recipe, "test"), recipe.model.num_classes);
  return std::make_unique<tasks::ClassPredictor>(model_options(recipe), pixel_options(recipe),
                                                 classes->class_names(), paths.weights);
}

}  // namespace hearth::run
