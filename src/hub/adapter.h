#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
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
/// Name of the weights file of a LoRA saved by diffusers.
inline constexpr const char* kDiffusersLora = "pytorch_lora_weights.safetensors";
/// Prefix of the model's tensor names in PEFT files.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// Returns a JSON number that is written as 16, not 16.0, if it is an integer, as in PEFT's files.
nlohmann::ordered_json json_number(double value);

/// Throws a UserError if the adapter trains embed_tokens or lm_head. Call for models that tie the two tables:
/// PEFT would load the trained table separately and untie them.
void check_untied(const nn::Adapter& adapter);

/// Returns the weights file of an adapter. `file_or_folder`: the adapter's folder, or the file itself. Throws
/// a UserError if the folder has only weights in an unsupported format.
fs::path adapter_weights(const fs::path& file_or_folder);

/// Contents of PEFT's adapter_config.json.
struct AdapterConfig {
  recipe::Adapter options;                 ///< targets are empty if they are a regular expression
  std::string base;                        ///< base_model_name_or_path
  std::shared_ptr<const ModuleRule> rule;  ///< rank and scale of each module
  bool transposed = false;                 ///< fan_in_fan_out: weights are [in, out]
  std::string rule_json;                   ///< JSON object with the keys that define `rule`
};
/// Reads the adapter_config.json in the folder of an adapter. Throws a UserError with the key for an adapter
/// that is not a plain LoRA, and for an unknown key, unless its value disables it (null, false, empty).
AdapterConfig read_adapter_config(const fs::path& file_or_folder);
/// Returns the adapter that a model is built with. `first`: config of the adapter that training starts from;
/// nullopt: a new one.
nn::Adapter builder_adapter(const recipe::Adapter& options, const std::optional<AdapterConfig>& first);
/// Returns the text of adapter_config.json for the adapter among `tensors`, of the model in the folder
/// `base`. `first`: as for builder_adapter.
std::string adapter_config_json(const recipe::Adapter& options, const std::optional<AdapterConfig>& first,
                                const std::vector<nn::Tensor>& tensors, const fs::path& base);

}  // namespace hearth::hub
