#include "run/run_folder.h"

#include <fmt/ranges.h>

#include "base/run_files.h"
#include "hub/adapter.h"
#include "hub/denoiser_adapter.h"
#include "hub/weights.h"
#include "recipe/recipe_file.h"
#include "recipe/resume.h"
#include "run/from_recipe.h"
#include "run/run_sink.h"

namespace hearth::run {
namespace {

void write_config(const fs::path& folder, const recipe::Recipe& recipe) {
  write_file_atomically(folder / kRunRecipe, recipe::write_recipe(recipe));
}

void write_adapter_config(const fs::path& folder, const tasks::Job& job, const engine::Plan& plan) {
  const recipe::Recipe& recipe = job.recipe;
  write_file_atomically(
      folder / hub::kAdapterConfig,
      job.denoiser
          ? hub::peft_config_json(hub::adapted_modules(plan.options.adapter, plan.tensors), recipe.model.path)
          : hub::adapter_config_json(recipe.adapter, job.first_adapter, plan.tensors, recipe.model.path));
}

/// Returns the dtype in which weights are saved: that of the model from which training starts; f32 for image
/// models.
DType saved_dtype(const tasks::Job& job) {
  if (!job.decoder) return DType::f32;
  const recipe::Recipe& recipe = job.recipe;
  const fs::path first = recipe.init.empty() ? recipe.model.path : recipe.init;
  return first.empty() ? hub::config_dtype(job.config_json, recipe.model.config) : hub::main_dtype(first);
}

}  // namespace

fs::path RunFolder::log() const { return path_ / kLogFile; }

void RunFolder::choose_dtype(const tasks::Job& job, bool resumed) {
  const fs::path config = path_ / kModelConfig;
  saved_dtype_ = resumed && path_exists(config)
                     ? hub::config_dtype(read_file(config, models::kMaxConfigBytes), config.string())
                     : run::saved_dtype(job);
}

void RunFolder::open(const tasks::Job& job, const engine::Engine& engine, bool resumed) {
  held_.emplace(path_);
  wrote_config_ = !resumed;
  if (wrote_config_) write_config(path_, job.recipe);
  if (hub::has_adapter(engine)) write_adapter_config(path_, job, engine.plan());
}

void RunFolder::update_config(const recipe::Recipe& recipe) {
  if (!std::exchange(wrote_config_, true)) write_config(path_, recipe);
}

std::string RunFolder::changed_keys(const recipe::Recipe& recipe) const {
  const fs::path config = path_ / kRunRecipe;
  if (!path_exists(config)) return "";
  return fmt::format("{}", fmt::join(recipe::changed_keys(load_recipe(config, {}), recipe), ", "));
}

void RunFolder::save_best_weights(const engine::Engine& engine) const {
  hub::save_weights(engine, path_ / kBestWeights, true, saved_dtype_);
}

void RunFolder::save_last_weights(const engine::Engine& engine) const {
  hub::save_weights(engine, path_ / hub::weights_name(engine), false, saved_dtype_);
}

void RunFolder::check() const {
  if (held_) held_->check();
}

}  // namespace hearth::run
