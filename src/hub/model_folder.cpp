#include "hub/model_folder.h"

#include <algorithm>

#include "base/error.h"
#include "base/foreign.h"
#include "base/gguf_cache.h"
#include "base/run_files.h"
#include "hub/adapter.h"
#include "hub/gguf_model.h"
#include "io/weight_files.h"
#include "net/hub_download.h"

namespace hearth::hub {
namespace {

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

bool is_run(const fs::path& folder) { return path_exists(folder / kRunRecipe); }

bool is_adapter(const fs::path& given) {
  if (is_gguf_file(given)) return false;
  if (!fs::is_directory(given)) return fs::is_regular_file(given);
  return has_any(given, {kAdapterConfig}) &&
         std::ranges::none_of(io::kWeightNames, [&](const std::string name) {
           return fs::exists(given / name) || fs::exists(given / (name + ".index.json"));
         });
}

/// Returns the path of the base model that adapter_config.json names. A name such as ORG/NAME, as PEFT writes
/// it, is searched for in the cache of the hub, without a request.
fs::path base_of_adapter(const fs::path& adapter) {
  const std::string base = read_adapter_config(adapter).base;
  if (path_exists(base) || base.starts_with('/')) return base;
  try {
    const fs::path cached = net::find_in_hub_cache(net::parse_hub_name(base), net::hub_settings());
    return cached.empty() ? fs::path(base) : cached;
  } catch (const UserError&) {
    return base;
  }
}

}  // namespace

fs::path run_weights(const fs::path& run, bool adapter) {
  const fs::path best = run / kBestWeights;
  if (path_exists(best)) return best;
  return run / (adapter ? kAdapterFile : kModelWeights);
}

bool has_tokenizer(const fs::path& folder) {
  return has_any(folder, {"tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json"});
}

ModelFolder find_adapted_model(const fs::path& adapter, const fs::path& base) {
  if (!fs::exists(adapter))
    user_error("there is no adapter at '{}'{}", adapter.string(), download_advice(adapter));
  const fs::path folder = fs::is_directory(adapter) ? adapter : adapter.parent_path();
  if (!has_any(folder, {kAdapterConfig}))
    user_error("'{}' is not a LoRA adapter: it has no {}", adapter.string(), kAdapterConfig);
  const fs::path model = base.empty() ? base_of_adapter(adapter) : base;
  if (!fs::is_directory(model) && !is_gguf_file(model)) {
    user_error("the base model was not found at '{}'{}; try --base DIR{}", model.string(),
               base.empty() ? " from adapter_config.json" : "", download_advice(model));
  }
  const bool whole_run = fs::is_directory(adapter) && is_run(adapter);
  const fs::path config = unpack_gguf(model);
  return {.model = config,
          .weights = model,
          .adapter = whole_run ? run_weights(adapter, true) : adapter,
          .text = has_tokenizer(folder) ? folder : config};
}

ModelFolder find_model(const fs::path& given, const fs::path& base) {
  if (is_adapter(given)) return find_adapted_model(given, base);
  if (!base.empty()) user_error("--base is for adapters, but '{}' has no {}", given.string(), kAdapterConfig);
  if (is_gguf_file(given)) {
    const fs::path config = unpack_gguf(given);
    return {.model = config, .weights = given, .adapter = {}, .text = config};
  }
  if (!fs::is_directory(given)) {
    user_error("there is no model, run or adapter at '{}'{}", given.string(), download_advice(given));
  }
  const fs::path weights = is_run(given) ? run_weights(given, false) : given;
  return {.model = given, .weights = path_exists(weights) ? weights : given, .adapter = {}, .text = given};
}

}  // namespace hearth::hub
