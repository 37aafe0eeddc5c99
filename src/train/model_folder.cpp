#include "train/model_folder.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/foreign.h"
#include "train/adapter.h"

namespace hearth::train {
namespace {

bool has_any(const fs::path& folder, std::initializer_list<const char*> names) {
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

bool is_adapter(const fs::path& given) {
  if (!fs::is_directory(given)) return fs::is_regular_file(given);
  return has_any(given, {kAdapterConfig}) &&
         !has_any(given, {"model.safetensors", "model.safetensors.index.json"});
}

}  // namespace

ModelFolder find_adapted_model(const fs::path& adapter, const fs::path& base) {
  if (!fs::exists(adapter))
    user_error("expected the folder of an adapter, got '{}', which is not there{}", adapter.string(),
               download_advice(adapter));
  const fs::path folder = fs::is_directory(adapter) ? adapter : adapter.parent_path();
  const fs::path model = base.empty() ? fs::path(read_adapter_config(adapter).base) : base;
  if (!fs::is_directory(model)) {
    user_error("expected the folder of the base model, got '{}'{}; try --base DIR{}", model.string(),
               base.empty() ? " from adapter_config.json" : "", download_advice(model));
  }
  const bool own_text = has_any(folder, {"tokenizer.json", "tokenizer.model", "vocab.json", "encoder.json"});
  return {.model = model, .weights = model, .adapter = adapter, .text = own_text ? folder : model};
}

ModelFolder find_model(const fs::path& given, const fs::path& base) {
  if (is_adapter(given)) return find_adapted_model(given, base);
  if (!base.empty())
    user_error("expected an adapter beside --base, got '{}', which has no {}", given.string(),
               kAdapterConfig);
  if (!fs::is_directory(given)) {
    user_error("expected the folder of a model or of a run, or an adapter, got '{}', which is not there{}",
               given.string(), download_advice(given));
  }
  return {.model = given, .weights = given, .adapter = {}, .text = given};
}

}  // namespace hearth::train
