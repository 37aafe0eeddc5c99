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
/// Prefix that PEFT files add to the tensor names of the base model.
inline constexpr const char* kAdapterPrefix = "base_model.model.";

/// Returns a number that is written to JSON without a decimal point if it is an integer (16, not 16.0), as in
/// PEFT's files.
nlohmann::ordered_json json_number(double value);

/// Throws a UserError if the adapter trains embed_tokens or lm_head. Call this for models whose embedding and
/// lm_head share one table: PEFT would load the trained copy separately, so that the two differ.
void check_untied(const nn::Adapter& adapter);

/// Returns the weights file of an adapter. `file_or_folder`: the folder of the adapter, or that file itself.
/// Throws a UserError if the folder has weights in unsupported formats only.
fs::path adapter_weights(const fs::path& file_or_folder);

/// Contents of PEFT's adapter_config.json.
struct AdapterConfig {
  /// Rank, alpha and target modules; targets are empty if target_modules is a regular expression.
  recipe::Adapter options;
  std::string base;                        ///< base model: the value of base_model_name_or_path
  std::shared_ptr<const ModuleRule> rule;  ///< determines rank and scale of each module
  bool transposed = false;                 ///< value of fan_in_fan_out: true if weights are [in, out]
  std::string rule_json;                   ///< JSON object with the keys that determine `rule` (kRuleKeys)
};
/// Reads the adapter_config.json in the folder of an adapter. Throws a UserError for an adapter other than a
/// plain LoRA, and for an unknown key unless its value is null, false or empty.
AdapterConfig read_adapter_config(const fs::path& file_or_folder);
/// Returns the description of the adapter with which a model is built. `first`: config of the adapter that
/// training continues from; nullopt: training starts with a new adapter.
nn::Adapter builder_adapter(const recipe::Adapter& options, const std::optional<AdapterConfig>& first);
/// Returns the text of adapter_config.json for the adapter in `tensors`, which adapts the base model in the
/// folder `base`. `first`: see builder_adapter().
std::string adapter_config_json(const recipe::Adapter& options, const std::optional<AdapterConfig>& first,
                                const std::vector<nn::Tensor>& tensors, const fs::path& base);

}  // namespace hearth::hub
