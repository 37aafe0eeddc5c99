#include "hub/export.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"
#include "hub/model_weights.h"
#include "hub/weights.h"
#include "models/decoder/config.h"
#include "models/torch_dtype.h"
#include "recipe/recipe_file.h"
#include "tasks/detect/detect_task.h"
#include "tasks/language/text_source.h"
#include "tasks/segment/segment_task.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kWeights = "model.safetensors";
constexpr const char* kRecipe = "config.yaml";

int64_t num_bytes(const io::TensorView& tensor) {
  return tensor.shape.num_elements() * dtype_bytes(tensor.dtype);
}

/// A file of weights that will be: tensors as they will be stored, and where they come from.
struct Shard {
  std::string name;
  std::vector<io::TensorView> tensors;
  std::vector<const io::TensorView*> sources;
  int64_t bytes = 0;

  void add(const io::TensorView& source, std::optional<DType> type) {
    io::TensorView tensor = source;
    if (type && is_floating(source.dtype) && dtype_bytes(source.dtype) > 1) tensor.dtype = *type;
    bytes += num_bytes(tensor);
    tensors.push_back(std::move(tensor));
    sources.push_back(&source);
  }
};

/// One file has the usual name, whatever a run calls it.
std::string name_of(const io::WeightFiles& files, size_t file) {
  return files.paths().size() == 1 ? "model.safetensors" : files.paths()[file].filename().string();
}

std::vector<Shard> plan_shards(const io::WeightFiles& files, const FolderOptions& options) {
  std::vector<Shard> shards;
  for (size_t i = 0; i < files.paths().size(); ++i) {
    if (i == 0 || options.shard_bytes == 0) shards.push_back({.name = name_of(files, i)});
    for (const io::TensorView& source : files.tensors_of(i)) {
      Shard one;
      one.add(source, options.type);
      const bool full = options.shard_bytes > 0 && shards.back().bytes + one.bytes > options.shard_bytes;
      if (full && !shards.back().tensors.empty()) shards.emplace_back();
      shards.back().add(source, options.type);
    }
  }
  if (options.shard_bytes == 0) return shards;
  for (size_t i = 0; i < shards.size(); ++i) {
    shards[i].name =
        shards.size() == 1 ? kWeights : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size());
  }
  return shards;
}

void write_index(const std::vector<Shard>& shards, const fs::path& folder) {
  if (shards.size() == 1 && shards[0].name == kWeights) return;
  int64_t total = 0;
  Json map = Json::object();
  for (const Shard& shard : shards) {
    total += shard.bytes;
    for (const io::TensorView& tensor : shard.tensors) map[tensor.name] = shard.name;
  }
  const Json index = {{"metadata", {{"total_size", total}}}, {"weight_map", map}};
  write_file_atomically(folder / kIndex, index.dump(2) + "\n");
}

void write_shards(ModelWeights& weights, const std::vector<Shard>& shards, const fs::path& folder) {
  for (const Shard& shard : shards) {
    io::write_safetensors(folder / shard.name, shard.tensors, [&](size_t i) {
      return weights.bytes_of(*shard.sources[i], shard.tensors[i].dtype);
    });
  }
}

void write_weights(ModelWeights& weights, const FolderOptions& options, const fs::path& folder) {
  const std::vector<Shard> shards = plan_shards(weights.files(), options);
  write_shards(weights, shards, folder);
  write_index(shards, folder);
}

void copy_into(const fs::path& file, const fs::path& folder) {
  write_file_atomically(folder / file.filename(), read_file(file));
}

/// Config, tokenizer and templates, byte for byte.
void copy_companions(const ModelFolder& model, const fs::path& to) {
  constexpr std::array<std::string_view, 4> kKinds = {".json", ".model", ".txt", ".jinja"};
  for (const fs::directory_entry& entry : fs::directory_iterator(model.model)) {
    const fs::path& file = entry.path();
    if (!entry.is_regular_file() || file.filename() == kIndex) continue;
    if (std::ranges::find(kKinds, file.extension().string()) != kKinds.end()) copy_into(file, to);
  }
  if (model.text == model.model) return;
  for (const fs::path& file : tasks::tokenizer_files({.tokenizer = model.text.string()})) copy_into(file, to);
}

/// config.json names the dtype, under the keys of both versions of transformers.
void set_dtype(const fs::path& file, DType type) {
  auto config = parse_json_object<Json>(read_file(file, models::kMaxConfigBytes), file.string());
  config["dtype"] = config["torch_dtype"] = models::torch_name(type);
  write_file_atomically(file, config.dump(2) + "\n");
}

void write_folder(const ModelFolder& model, ModelWeights& weights, const FolderOptions& options,
                  const fs::path& folder) {
  write_weights(weights, options, folder);
  copy_companions(model, folder);
  if (options.type) set_dtype(folder / "config.json", *options.type);
}

}  // namespace

bool is_image_run(const fs::path& folder) {
  if (!fs::is_regular_file(folder / kRecipe) || fs::exists(folder / "config.json")) return false;
  return !recipe::is_text(recipe::load_recipe(folder / kRecipe, {}));
}

int64_t export_folder(const ModelFolder& model, const FolderOptions& options) {
  NewFolder folder(options.out);
  models::refuse_quantized_weights(model.model / "config.json");
  ModelWeights weights(model, options.num_threads);
  write_folder(model, weights, options, folder.contents());
  folder.commit();
  return weights.num_changed();
}

fs::path export_image_run(const fs::path& run, const FolderOptions& options) {
  HEARTH_CHECK(options.shard_bytes == 0);
  NewFolder folder(options.out);
  ModelFolder model{.model = run, .weights = run_weights(run, false), .adapter = {}, .text = {}};
  ModelWeights weights(model, options.num_threads);
  std::vector<Shard> shards = plan_shards(weights.files(), options);
  shards.front().name = kWeights;
  write_shards(weights, shards, folder.contents());
  copy_into(run / kRecipe, folder.contents());
  for (const char* classes : {tasks::kClassTable, tasks::kDetectionClasses})
    if (fs::exists(run / classes)) copy_into(run / classes, folder.contents());
  folder.commit();
  return model.weights;
}

}  // namespace hearth::hub
