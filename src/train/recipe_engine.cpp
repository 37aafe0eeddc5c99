#include <algorithm>
#include <bit>

#include "train/card_options.h"
#include "train/classifier.h"
#include "train/language_model.h"
#include "train/recipe.h"

namespace hearth::train {

std::shared_ptr<const Objective> objective_of(const Recipe& recipe) {
  if (!is_text(recipe)) return classifier({.model = recipe.model, .label_smoothing = recipe.label_smoothing});
  const models::DecoderConfig config = models::read_decoder_config(recipe.text.config_file());
  if (config.tied_head) check_untied(builder_adapter(recipe.adapter));
  const LanguageModelOptions model{
      .config = config, .context = recipe.text.context, .documents = has_documents(recipe)};
  return recipe.objective == "dpo" ? dpo(model, recipe.dpo) : language_model(model);
}

int num_threads(const Recipe& recipe) {
  if (recipe.threads > 0) return static_cast<int>(recipe.threads);
  return std::max(1, num_available_cpus() / static_cast<int>(recipe.devices));
}

namespace {

exec::SelfTest::When self_test_of(const Recipe& recipe) {
  using When = exec::SelfTest::When;
  if (recipe.self_test == "always") return When::always;
  return recipe.self_test == "never" ? When::never : When::once;
}

}  // namespace

bool have_own_states(const Recipe& recipe) { return recipe.compress != "none" || recipe.local.steps > 1; }

int num_sharing(const Recipe& recipe, int num_devices) {
  if (have_own_states(recipe) && num_devices < recipe.devices) return 0;
  if (recipe.parallel == "pipeline") return num_devices;
  const auto shares = [&](int64_t count) {
    return recipe.shards % count == 0 && std::has_single_bit(static_cast<uint64_t>(recipe.shards / count));
  };
  while (num_devices > 0 && !shares(num_devices)) --num_devices;
  return num_devices;
}

EngineOptions engine_options(const Recipe& recipe, int device, int64_t num_workers) {
  const DType precision = recipe.precision == "bf16"   ? DType::bf16
                          : recipe.precision == "fp16" ? DType::f16
                                                       : DType::f32;
  EngineOptions options{.objective = objective_of(recipe),
                        .optimizer = recipe.optimizer,
                        .adapter = builder_adapter(recipe.adapter),
                        .batch = recipe.batch,
                        .accumulate = recipe.accumulate,
                        .shards = recipe.shards,
                        .num_workers = num_workers > 0 ? num_workers : recipe.devices,
                        .precision = precision,
                        .seed = recipe.seed,
                        .num_threads = num_threads(recipe),
                        .budget_bytes = recipe.memory,
                        .offload = recipe.offload};
  if (exec::names_card(recipe.device)) {
    use_card(options, {.device = recipe.device, .number = device, .reserve_bytes = recipe.reserve},
             self_test_of(recipe));
  }
  using Way = passes::CompressOptions::Way;
  options.compress.way = recipe.compress == "bf16"       ? Way::bf16
                         : recipe.compress == "powersgd" ? Way::powersgd
                                                         : Way::none;
  options.local = recipe.local;
  options.parallel = recipe.parallel == "zero1"      ? Parallel::zero1
                     : recipe.parallel == "sharded"  ? Parallel::sharded
                     : recipe.parallel == "pipeline" ? Parallel::pipeline
                                                     : Parallel::data;
  options.passes_off = recipe.passes_off;
  std::erase(options.passes_off, "winograd");
  return options;
}

Recipe on_one_device(Recipe recipe) {
  const Recipe usual;
  recipe.devices = recipe.shards = 1;
  recipe.parallel = usual.parallel;
  recipe.compress = usual.compress;
  recipe.local = usual.local;
  return recipe;
}

}  // namespace hearth::train
