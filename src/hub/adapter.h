#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "hub/module_rule.h"
#include "recipe/recipe.h"

namespace hearth::hub {

inline constexpr const char* kAdapterFile = "adapter_model.safetensors";
/// Name of the weights file of older PEFT versions, in torch.save's format.
inline constexpr const char* kOldAdapterFile = "adapter_model.bin";
inline constexpr const char* kAdapterConfig = "adapter_config.json";
/// What diffusers calls a file of a LoRA.
inline constexpr const char* kDiffusersLora = "pytorch_lora_weights.safetensors";
/// What PEFT puts before the names of the model.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// 16, not 16.0: a number as PEFT's own files have it.
nlohmann::ordered_json json_number(double value);

/// For models whose embed_tokens and lm_head are one table: UserError if the adapter would train one of the
/// two, because PEFT would load it as a table of its own.
void check_untied(const nn::Adapter& adapter);

/// The weights of an adapter given as its folder, or as the file itself.
fs::path adapter_weights(const fs::path& file_or_folder);

struct AdapterConfig {
  recipe::Adapter options;                 ///< targets are empty where they are no list of names
  std::string base;                        ///< base_model_name_or_path
  std::shared_ptr<const ModuleRule> rule;  ///< what becomes of each module
  bool transposed = false;                 ///< fan_in_fan_out
  std::string rule_json;                   ///< the keys that say it, as an object
};
/// Reads the adapter_config.json beside an adapter's weights. UserError naming the key for what is no plain
/// LoRA and for a key that is not known, unless its value turns nothing on.
AdapterConfig read_adapter_config(const fs::path& file_or_folder);
/// Returns the adapter that a model is built with. `first`: config of the adapter that training starts from;
/// null: a new one.
nn::Adapter builder_adapter(const recipe::Adapter& options, const AdapterConfig* first);
/// Returns the text of adapter_config.json for the adapter among `tensors`, of the model in the folder
/// `base`. `first`: as for builder_adapter.
std::string adapter_config_json(const recipe::Adapter& options, const AdapterConfig* first,
                                const std::vector<nn::Tensor>& tensors, const fs::path& base);

}  // namespace hearth::hub
