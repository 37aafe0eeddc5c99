#include "hub/export.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/json.h"
#include "base/output.h"
#include "base/run_files.h"
#include "hub/model_weights.h"
#include "hub/shards.h"
#include "models/decoder/config.h"
#include "models/torch_dtype.h"
#include "text/tokenizer.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

void copy_into(const fs::path& file, const fs::path& folder) {
  write_file_atomically(folder / file.filename(), read_file(file));
}

/// True for the quantization config of older GPTQ and AWQ models, which is not valid for dequantized weights.
bool is_quantization_config(const fs::path& file) {
  return file.filename() == "quantize_config.json" || file.filename() == "quant_config.json";
}

/// Replaces the quantization in config.json, because the written weights have another one or none. If `type`
/// is set, sets the dtype under the keys of old and new versions of transformers (torch_dtype, dtype).
void update_config(const fs::path& file, std::optional<DType> type, const std::string& quantization) {
  auto config = parse_json_object<Json>(read_file(file, models::kMaxConfigBytes), file.string());
  const size_t num_removed = config.erase("quantization_config") + config.erase("compression_config");
  if (!type && num_removed == 0 && quantization.empty()) return;
  if (type) config["dtype"] = config["torch_dtype"] = models::torch_name(*type);
  if (!quantization.empty()) config["quantization_config"] = Json::parse(quantization);
  write_file_atomically(file, config.dump(2) + "\n");
}

}  // namespace

void copy_companions(const ModelFolder& model, const fs::path& to) {
  constexpr auto kKinds = std::to_array<std::string_view>({".json", ".model", ".txt", ".jinja"});
  for (const fs::directory_entry& entry : fs::directory_iterator(model.model)) {
    const fs::path& file = entry.path();
    if (!entry.is_regular_file() || file.string().ends_with(".index.json") || is_quantization_config(file))
      continue;
    if (std::ranges::find(kKinds, file.extension().string()) != kKinds.end()) copy_into(file, to);
  }
  if (model.text == model.model) return;
  for (const fs::path& file : text::tokenizer_files(model.text)) copy_into(file, to);
}

int64_t export_folder(const ModelFolder& model, const FolderOptions& options) {
  NewFolder folder(options.out);
  models::read_decoder_json(model.model / kModelConfig);
  ModelWeights weights(model, options.num_threads);
  write_model(model, weights, options, folder);
  return weights.num_changed();
}

void write_model(const ModelFolder& model, ModelWeights& weights, const FolderOptions& options,
                 NewFolder& folder, const Replace& replace, const std::string& quantization) {
  write_weights(weights, options, folder.contents(), "model", replace);
  copy_companions(model, folder.contents());
  update_config(folder.contents() / kModelConfig, options.type, quantization);
  folder.commit();
}

fs::path export_image_run(const fs::path& run, const FolderOptions& options) {
  HEARTH_CHECK(options.shard_bytes == 0);
  NewFolder folder(options.out);
  ModelFolder model{.model = run, .weights = run_weights(run, false), .adapter = {}, .text = {}};
  ModelWeights weights(model, options.num_threads);
  write_weights(weights, options, folder.contents(), "model");
  copy_into(run / kRunRecipe, folder.contents());
  for (const char* classes : {kClassTable, kDetectionClasses})
    if (fs::exists(run / classes)) copy_into(run / classes, folder.contents());
  folder.commit();
  return model.weights;
}

}  // namespace hearth::hub
