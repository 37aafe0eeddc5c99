#include "run/from_recipe.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/run_files.h"
#include "base/text.h"
#include "data/masks/masks.h"
#include "engine/gpu_options.h"
#include "exec/device/gpu_choice.h"
#include "hub/adapter.h"
#include "hub/export_denoiser.h"
#include "hub/open_weights.h"
#include "io/weight_files.h"
#include "models/model.h"
#include "ops/matmul/quantized.h"
#include "run/update_options.h"
#include "tasks/classify/tensors_dataset.h"
#include "tasks/detect/detect_recipe.h"
#include "tasks/detect/detector.h"
#include "tasks/device_options.h"
#include "tasks/diffuse/diffuse_recipe.h"
#include "tasks/widths.h"
#include "text/chat.h"

namespace hearth::run {
namespace {

recipe::Choices make_choices() {
  recipe::Choices choices{.is_gpu = exec::names_gpu};
  std::vector<std::string>& models = choices.names["model.name"];
  for (const models::ModelDef& model : models::model_list()) models.emplace_back(model.name);
  for (const tasks::DetectorDef& model : tasks::detectors()) models.emplace_back(model.name);
  std::vector<std::string>& quantizations = choices.names["adapter.quantize"] = {""};
  for (const auto kind : ops::kQuantizations) quantizations.emplace_back(ops::quantization_name(kind));
  choices.names["distill.quantize"] = quantizations;
  std::vector<std::string>& kinds = choices.names["data.kind"] = tasks::image_kinds();
  for (const std::string& kind : data::mask_kinds())
    if (std::ranges::find(kinds, kind) == kinds.end()) kinds.push_back(kind);
  kinds.insert(kinds.end(), tasks::box_kinds().begin(), tasks::box_kinds().end());
  kinds.emplace_back(name_of(recipe::DataKind::text));
  kinds.insert(kinds.end(), {tasks::kCaptions, tasks::kKohya});
  choices.names["data.template"] = text::built_in_templates();
  choices.names["optimizer.name"] = {engine::optimizer_names().begin(), engine::optimizer_names().end()};
  return choices;
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

std::optional<recipe::Recipe> recipe_of_run(const fs::path& folder) {
  if (!fs::is_regular_file(folder / kRunRecipe) || path_exists(folder / kModelIndex)) return std::nullopt;
  return load_recipe(folder / kRunRecipe);
}

tasks::ModelFormat model_format(const fs::path& path) {
  if (const auto trained = recipe_of_run(path)) return tasks::task_of(*trained).model_format;
  return hub::is_denoiser(path) ? tasks::ModelFormat::diffusers : tasks::ModelFormat::transformers;
}

engine::EngineOptions engine_options(const tasks::Job& job, int device, int64_t num_workers) {
  const recipe::Recipe& recipe = job.recipe;
  const recipe::Exchange& exchange = recipe.exchange;
  const bool is_language = tasks::task_of(recipe).model_format == tasks::ModelFormat::transformers;
  engine::EngineOptions options{.objective = tasks::objective_of(job),
                                .optimizer = optimizer_options(recipe),
                                .adapter = job.adapter,
                                .rounding = {.scheme = recipe.quantize.qat,
                                             .group = recipe.quantize.group,
                                             .first_step = recipe.quantize.after_steps},
                                .prune = {.method = recipe.prune.method,
                                          .scope = recipe.prune.scope,
                                          .pattern = recipe.prune.pattern,
                                          .kept = recipe.prune.keep,
                                          .keeps_last = !is_language},
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
                                .matmul_precision = recipe.matmul_precision,
                                .seed = recipe.seed,
                                .num_threads = recipe::num_threads(recipe),
                                .budget_bytes = recipe.memory,
                                .offload = {.states = recipe.offload.states,
                                            .weights = recipe.offload.weights,
                                            .activations = recipe.offload.activations,
                                            .saved = recipe.saved_activations},
                                .passes_off = recipe.passes.off};
  options.winograd = std::erase(options.passes_off, recipe::kWinograd) == 0;
  if (recipe.device != recipe::kCpu)
    engine::use_gpu(options, tasks::gpu_of(recipe, device), recipe.self_test);
  return options;
}

void check_initial_weights(const tasks::Job& job) {
  const recipe::Recipe& recipe = job.recipe;
  const std::string& model = recipe.init.empty() ? recipe.model.path : recipe.init;
  if (!model.empty()) hub::open_weights(model);
  if (job.first_adapter) io::WeightFiles{hub::adapter_weights(recipe.adapter.path)};
}

hub::OnnxOptions onnx_options(const recipe::Recipe& recipe, const fs::path& run) {
  const tasks::TaskDef& task = tasks::image_task_of(recipe, run);
  const tasks::ExportMetadata facts = task.exported(recipe, run);
  const auto list = [](const std::vector<float>& values) {
    return fmt::format("[{}]", fmt::join(values, ", "));
  };
  return {.out = {},
          .name = recipe.model.name,
          .metadata = {{"task", std::string(task.name)},
                       {"names", nlohmann::json(facts.names).dump()},
                       {"mean", list(facts.pixels.mean)},
                       {"std", list(facts.pixels.std)},
                       {"color", recipe.data.channels == 1 ? "gray" : "RGB"},
                       {"pixels", "(value / 255 - mean) / std"},
                       {"fit", facts.fit}}};
}

}  // namespace hearth::run
