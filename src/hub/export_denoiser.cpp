#include "hub/export_denoiser.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "base/output.h"
#include "base/run_files.h"
#include "hub/denoiser_adapter.h"
#include "hub/model_weights.h"
#include "hub/open_weights.h"
#include "hub/shards.h"
#include "models/decoder/config.h"
#include "models/denoiser/denoiser.h"

namespace hearth::hub {
namespace {

/// Copies the parts of a diffusers folder other than the denoiser: text encoders, autoencoder, scheduler and
/// so on.
void copy_other_parts(const fs::path& from, const fs::path& to) {
  for (const fs::directory_entry& entry : fs::directory_iterator(from)) {
    if (entry.path().filename() == kDenoiserFolder) continue;
    fs::copy(entry.path(), to / entry.path().filename(), fs::copy_options::recursive);
  }
}

bool has_denoiser_config(const fs::path& folder) {
  const fs::path file = folder / kModelConfig;
  if (!fs::is_regular_file(file)) return false;
  return parse_json_object<nlohmann::json>(read_file(file, models::kMaxConfigBytes), file.string())
      .contains("_class_name");
}

}  // namespace

bool is_denoiser(const fs::path& given) {
  return fs::exists(given / kModelIndex) || is_denoiser_adapter(given) || has_denoiser_config(given);
}

ModelFolder find_denoiser(const fs::path& given, const fs::path& base) {
  if (!is_denoiser_adapter(given)) {
    if (!base.empty()) user_error("--base is for LoRAs, but '{}' is not one", given.string());
    const bool is_run = fs::exists(given / kRunRecipe);
    return {.model = given, .weights = is_run ? run_weights(given, false) : given, .adapter = {}, .text = {}};
  }
  const fs::path folder = fs::is_directory(given) ? given : given.parent_path();
  fs::path model = base;
  if (base.empty() && fs::exists(folder / kAdapterConfig)) model = read_adapter_config(given).base;
  if (!fs::is_directory(model)) {
    user_error("the base model of '{}' was not found at '{}'; try --base DIR{}", given.string(),
               model.string(), download_advice(model));
  }
  return {.model = model, .weights = model, .adapter = given, .text = {}};
}

int64_t export_denoiser(const ModelFolder& model, const FolderOptions& options) {
  NewFolder folder(options.out);
  const bool is_whole = fs::exists(model.model / kModelIndex);
  const fs::path source = is_whole ? model.model / kDenoiserFolder : model.model;
  models::read_denoiser_config(source / kModelConfig);
  ModelWeights weights(model, options.num_threads);
  const fs::path target = is_whole ? folder.contents() / kDenoiserFolder : folder.contents();
  make_folder(target);
  write_weights(weights, options, target, "diffusion_pytorch_model");
  write_file_atomically(target / kModelConfig, read_file(source / kModelConfig));
  if (is_whole) copy_other_parts(model.model, folder.contents());
  folder.commit();
  return weights.num_changed();
}

}  // namespace hearth::hub
