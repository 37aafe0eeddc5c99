#include "recipe/recipe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/file.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "base/threads.h"
#include "recipe/built_in.h"

namespace hearth::recipe {

DataKind data_kind(std::string_view name) {
  const auto& names = kNames<DataKind>;
  return static_cast<DataKind>(std::ranges::find(names, name) - names.begin());
}

bool is_image_generation(const Recipe& recipe) { return recipe.train.objective >= Objective::flow; }

bool is_text(const Recipe& recipe) {
  return !is_image_generation(recipe) && (!recipe.model.path.empty() || !recipe.model.config.empty());
}

bool Data::is_stream(const fs::path& file) const {
  return file.extension() == ".safetensors" || (file.extension() == ".txt" && document == Document::file);
}

bool has_documents(const Recipe& recipe) {
  const Data& data = recipe.data;
  const bool streams = data.is_stream(data.path) && (data.val_path.empty() || data.is_stream(data.val_path));
  return data.packing && !streams;
}

bool has_pairs(const Recipe& recipe) { return recipe.train.objective == Objective::dpo; }

fs::path Model::config_file() const {
  if (!config.empty()) return local_file(config);
  // In diffusers' layout, config.json of the denoiser is in the subfolder transformer/.
  const fs::path folder = config_folder(path), denoiser = folder / "transformer/config.json";
  return path_exists(denoiser) ? denoiser : folder / kModelConfig;
}

double Adapter::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

int num_threads(const Recipe& recipe) {
  if (recipe.threads > 0) return static_cast<int>(recipe.threads);
  return std::max(1, num_available_cpus() / static_cast<int>(recipe.devices));
}

bool have_private_states(const Recipe& recipe) {
  return recipe.exchange.compress != Compress::none || recipe.exchange.local_steps > 1;
}

int num_usable_devices(const Recipe& recipe, int num_devices) {
  if (have_private_states(recipe) && num_devices < recipe.devices) return 0;
  if (recipe.parallel == Parallel::pipeline) return num_devices;
  const auto shares = [shards = recipe.train.shards](int64_t count) {
    return shards % count == 0 && std::has_single_bit(static_cast<uint64_t>(shards / count));
  };
  while (num_devices > 0 && !shares(num_devices)) --num_devices;
  return num_devices;
}

Recipe on_one_device(Recipe recipe) {
  recipe.devices = recipe.train.shards = 1;
  recipe.parallel = Parallel::data;
  recipe.exchange = {.transport = recipe.exchange.transport};
  return recipe;
}

std::string precision_name(const Recipe& recipe) {
  std::string name(name_of(recipe.precision));
  if (recipe.matmul_precision != MatmulPrecision::same)
    name += fmt::format(", matmuls {}", name_of(recipe.matmul_precision));
  return name;
}

std::string model_name(const Recipe& recipe) {
  if (recipe.model.path.empty() && recipe.model.config.empty()) return recipe.model.name;
  if (is_gguf_file(recipe.model.path)) return fs::path(recipe.model.path).stem().string();
  const fs::path folder = fs::absolute(recipe.model.config_file()).parent_path();
  // The cache of the Hugging Face hub: models--ORG--NAME/snapshots/COMMIT.
  if (folder.parent_path().filename() != "snapshots") return folder.filename().string();
  const std::string repo = folder.parent_path().parent_path().filename().string();
  return repo.substr(repo.rfind("--") == repo.npos ? 0 : repo.rfind("--") + 2);
}

}  // namespace hearth::recipe
