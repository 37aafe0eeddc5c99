#include "run/from_recipe.h"

#include "engine/gpu_options.h"
#include "hub/adapter.h"
#include "io/weight_files.h"
#include "tasks/classify/classifier.h"
#include "tasks/classify/image_task.h"
#include "tasks/language/language_model.h"
#include "tasks/preference/dpo.h"
#include "tasks/preference/preference_task.h"

namespace hearth::run {

std::shared_ptr<const engine::Objective> objective_of(const recipe::Recipe& recipe) {
  if (!recipe::is_text(recipe))
    return tasks::classifier({.model = recipe.model, .label_smoothing = recipe.label_smoothing});
  const models::DecoderConfig config = models::read_decoder_config(recipe.text.config_file());
  if (config.tied_head) hub::check_untied(hub::builder_adapter(recipe.adapter));
  const tasks::LanguageModelOptions model{
      .config = config, .context = recipe.text.context, .documents = recipe::has_documents(recipe)};
  return recipe.objective == "dpo" ? tasks::dpo(model, recipe.dpo) : tasks::language_model(model);
}

namespace {

exec::SelfTest::When self_test_of(const recipe::Recipe& recipe) {
  using When = exec::SelfTest::When;
  if (recipe.self_test == "always") return When::always;
  return recipe.self_test == "never" ? When::never : When::once;
}

}  // namespace

engine::EngineOptions engine_options(const recipe::Recipe& recipe, int device, int64_t num_workers) {
  const DType precision = recipe.precision == "bf16"   ? DType::bf16
                          : recipe.precision == "fp16" ? DType::f16
                                                       : DType::f32;
  engine::EngineOptions options{.objective = objective_of(recipe),
                                .optimizer = recipe.optimizer,
                                .adapter = hub::builder_adapter(recipe.adapter),
                                .batch = recipe.batch,
                                .accumulate = recipe.accumulate,
                                .shards = recipe.shards,
                                .num_workers = num_workers > 0 ? num_workers : recipe.devices,
                                .precision = precision,
                                .seed = recipe.seed,
                                .num_threads = recipe::num_threads(recipe),
                                .budget_bytes = recipe.memory,
                                .offload = recipe.offload};
  if (exec::names_gpu(recipe.device)) {
    engine::use_gpu(options, {.device = recipe.device, .number = device, .reserve_bytes = recipe.reserve},
                    self_test_of(recipe));
  }
  using Way = passes::CompressOptions::Way;
  options.compress.way = recipe.compress == "bf16"       ? Way::bf16
                         : recipe.compress == "powersgd" ? Way::powersgd
                                                         : Way::none;
  options.local = recipe.local;
  options.parallel = recipe.parallel == "zero1"      ? engine::Parallel::zero1
                     : recipe.parallel == "sharded"  ? engine::Parallel::sharded
                     : recipe.parallel == "pipeline" ? engine::Parallel::pipeline
                                                     : engine::Parallel::data;
  options.passes_off = recipe.passes_off;
  std::erase(options.passes_off, "winograd");
  return options;
}

void check_first_weights(const recipe::Recipe& recipe) {
  const std::string& model = recipe.init.empty() ? recipe.text.model : recipe.init;
  if (recipe::is_text(recipe)) models::read_decoder_config(recipe.text.config_file());
  if (!model.empty()) io::WeightFiles{fs::path(model)};
  if (recipe.adapter.path.empty()) return;
  hub::read_adapter_config(recipe.adapter.path);
  io::WeightFiles{hub::adapter_weights(recipe.adapter.path)};
}

std::unique_ptr<tasks::Task> open_task(const recipe::Recipe& recipe) {
  if (recipe.objective == "dpo") return std::make_unique<tasks::PreferenceTask>(recipe);
  if (recipe::is_text(recipe)) return std::make_unique<tasks::TextTask>(recipe);
  return std::make_unique<tasks::ImageTask>(recipe);
}

}  // namespace hearth::run
