#include "hub/adapter.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::hub {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxAdapterConfigBytes = 1 << 20;

/// Keys of adapter_config.json that determine the rank and scale of each module. A run that continues
/// training an adapter copies them to the adapter_config.json that it writes.
constexpr auto kRuleKeys = std::to_array<std::string_view>(
    {"r", "lora_alpha", "use_rslora", "target_modules", "exclude_modules", "modules_to_save",
     "layers_to_transform", "layers_pattern", "rank_pattern", "alpha_pattern"});
/// Other keys of adapter_config.json whose values are read.
constexpr auto kReadKeys =
    std::to_array<std::string_view>({"peft_type", "task_type", "bias", "use_dora", "init_lora_weights",
                                     "base_model_name_or_path", "fan_in_fan_out"});
/// Keys of adapter_config.json that are ignored, because they do not affect the computation: origin of the
/// adapter, how it was trained, and parameters of features that other keys enable.
constexpr auto kHarmless = std::to_array<std::string_view>(
    {"auto_mapping", "peft_version", "revision", "inference_mode", "lora_dropout", "runtime_config",
     "megatron_core", "eva_config", "qalora_group_size", "ensure_weight_tying", "loftq_config",
     "corda_config", "lora_ga_config"});
/// Keys of adapter_config.json that enable an unsupported feature even if their value is empty.
constexpr auto kOnWhenEmpty = std::to_array<std::string_view>(
    {"alora_invocation_tokens", "arrow_config", "kasa_config", "velora_config", "trainable_token_indices",
     "monteclora_config", "use_bdlora"});

bool is_among(std::string_view key, std::span<const std::string_view> keys) {
  return std::ranges::find(keys, key) != keys.end();
}

fs::path config_of(const fs::path& file_or_folder) {
  const fs::path folder = fs::is_directory(file_or_folder) ? file_or_folder : file_or_folder.parent_path();
  return folder / kAdapterConfig;
}

std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

/// True if a value in adapter_config.json disables the feature of its key.
bool is_neutral(std::string_view key, const Json& value) {
  if (value.is_null() || value == false) return true;
  const bool is_empty = value == "" || (value.is_structured() && value.empty());
  return is_empty && !is_among(key, kOnWhenEmpty);
}

void check_keys(const fs::path& file, const Json& config) {
  for (const auto& [key, value] : config.items()) {
    if (is_among(key, kRuleKeys) || is_among(key, kReadKeys) || is_among(key, kHarmless)) continue;
    if (is_neutral(key, value)) continue;
    user_error(
        "{}: \"{}\": {} is not supported; merge the adapter with PEFT's merge_and_unload, or remove the key "
        "if it has no effect",
        file.string(), shortened(key, 60), shortened(dumped(value), 60));
  }
}

void check_plain(const fs::path& file, const Json& config) {
  if (config.value("peft_type", Json()) != "LORA") refuse_value(file, "peft_type", config, "\"LORA\"");
  check_keys(file, config);
  const Json task = config.value("task_type", Json());
  if (!task.is_null() && task != "CAUSAL_LM") refuse_value(file, "task_type", config, "\"CAUSAL_LM\"");
  if (!is_neutral("use_dora", config.value("use_dora", Json())))
    refuse_value(file, "use_dora", config, "false (a plain LoRA)");
  if (config.value("bias", Json("none")) != "none") refuse_value(file, "bias", config, "\"none\"");
  const Json rslora = config.value("use_rslora", Json());
  if (!rslora.is_null() && !rslora.is_boolean()) refuse_value(file, "use_rslora", config, "true or false");
  const Json transposed = config.value("fan_in_fan_out", Json());
  if (!transposed.is_null() && !transposed.is_boolean())
    refuse_value(file, "fan_in_fan_out", config, "true or false");
  // Initializations other than these (such as PiSSA and OLoRA) modify the base weights before training.
  const Json start = config.value("init_lora_weights", Json(true));
  if (!start.is_boolean() && !start.is_null() && start != "gaussian" && start != "eva" &&
      start != "orthogonal")
    refuse_value(file, "init_lora_weights", config, "true");
}

std::vector<std::string> names_in(const Json& config, const char* key) {
  const Json value = config.value(key, Json());
  if (value.is_array()) return value.get<std::vector<std::string>>();
  if (value.is_string() && is_all_linear(value.get<std::string>())) return {kAllLinear};
  return {};
}

std::string rule_json(const Json& config) {
  Json rule = Json::object();
  for (const std::string_view key : kRuleKeys) {
    if (const auto found = config.find(key); found != config.end()) rule[std::string(key)] = *found;
  }
  return rule.dump();
}

bool all_linear(const std::vector<std::string>& targets) {
  return std::ranges::find(targets, kAllLinear) != targets.end();
}

/// Returns the names of the modules with an adapter, shortened as in PEFT's target_modules ("q_proj"),
/// without duplicates.
std::vector<std::string> adapted_names(const std::vector<nn::Tensor>& tensors) {
  constexpr std::string_view kEnd = ".lora_A.weight";
  std::vector<std::string> modules;
  for (const nn::Tensor& tensor : tensors) {
    if (tensor.adapter && tensor.name.ends_with(kEnd))
      modules.push_back(tensor.name.substr(0, tensor.name.size() - kEnd.size()));
  }
  return nn::short_names(modules);
}

/// Returns the value of modules_to_save for adapter_config.json. PEFT matches every module whose name ends
/// with an entry ("norm" also matches input_layernorm), so an entry that would match more modules than in
/// Hearth is replaced by full module names.
std::vector<std::string> saved_names(const std::vector<std::string>& names,
                                     const std::vector<nn::Tensor>& tensors) {
  std::vector<std::string> saved;
  for (const std::string& name : names) {
    std::vector<std::string> meant;
    bool more = false;
    for (const nn::Tensor& tensor : tensors) {
      const std::string module = tensor.name.substr(0, tensor.name.rfind('.'));
      if (tensor.adapter || !module.ends_with(name)) continue;
      more |= !ends_as(module, name);
      if (ends_as(module, name) && std::ranges::find(meant, module) == meant.end()) meant.push_back(module);
    }
    if (!more) meant = {name};
    saved.insert(saved.end(), meant.begin(), meant.end());
  }
  return saved;
}

}  // namespace

Json json_number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

nn::Adapter builder_adapter(const recipe::Adapter& options, const std::optional<AdapterConfig>& first) {
  if (!options.wanted()) return {};
  nn::Adapter adapter{.rank = options.rank,
                      .scale = options.scale(),
                      .dropout = options.dropout,
                      .whole = options.modules_to_save,
                      .quantized = ops::quantization_from_name(options.quantize)};
  if (!all_linear(options.targets)) adapter.targets = options.targets;
  if (!first) return adapter;
  adapter.rank = first->options.rank;
  adapter.targets.clear();
  if (!first->rule->all_linear()) adapter.targets = {"target_modules"};
  adapter.rule = [rule = first->rule](std::string_view module) { return rule->change_of(module); };
  adapter.rule_name = first->rule->file();
  adapter.transposed = first->transposed;
  return adapter;
}

void check_untied(const nn::Adapter& adapter) {
  for (const char* name : {"model.embed_tokens", "transformer.wte", "lm_head"}) {
    if (!adapter.change_of(name).whole) continue;
    user_error(
        "{} contains '{}', but this model ties its embedding table and lm_head; try "
        "adapter.targets=all-linear with a higher adapter.rank",
        adapter.rule ? adapter.rule_name + ": modules_to_save" : "adapter.modules_to_save", name);
  }
}

fs::path adapter_weights(const fs::path& file_or_folder) {
  if (!fs::is_directory(file_or_folder)) return file_or_folder;
  for (const char* name : {kAdapterFile, kDiffusersLora, kOldAdapterFile})
    if (fs::exists(file_or_folder / name)) return file_or_folder / name;
  refuse_unsupported_weights(file_or_folder);
  return file_or_folder / kAdapterFile;
}

AdapterConfig read_adapter_config(const fs::path& file_or_folder) {
  const fs::path file = config_of(file_or_folder);
  const Json config = parse_json_object<Json>(read_file(file, kMaxAdapterConfigBytes), file.string());
  check_plain(file, config);
  const Json rank = config.value("r", Json()), alpha = config.value("lora_alpha", Json());
  if (!rank.is_number_integer() || rank < 1 || rank > 1 << 16)
    refuse_value(file, "r", config, "a rank from 1 to 65536");
  if (!alpha.is_number()) refuse_value(file, "lora_alpha", config, "a number");
  const Json base = config.value("base_model_name_or_path", Json());
  AdapterConfig read{.options = {.name = recipe::AdapterKind::lora,
                                 .rank = rank.get<int64_t>(),
                                 .alpha = alpha.get<double>(),
                                 .rslora = config.value("use_rslora", Json()) == true,
                                 .targets = {}},
                     .base = base.is_string() ? base.get<std::string>() : "",
                     .rule = std::make_shared<ModuleRule>(config, file.string()),
                     .transposed = config.value("fan_in_fan_out", Json()) == true,
                     .rule_json = rule_json(config)};
  read.options.targets = names_in(config, "target_modules");
  read.options.modules_to_save = names_in(config, "modules_to_save");
  return read;
}

std::string adapter_config_json(const recipe::Adapter& options, const std::optional<AdapterConfig>& first,
                                const std::vector<nn::Tensor>& tensors, const fs::path& base) {
  Json config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["base_model_name_or_path"] = fs::absolute(base).lexically_normal().string();
  config["r"] = options.rank;
  config["lora_alpha"] = json_number(options.alpha);
  config["lora_dropout"] = json_number(options.dropout);
  config["use_rslora"] = options.rslora;
  config["use_dora"] = false;
  config["target_modules"] = all_linear(options.targets) ? adapted_names(tensors) : options.targets;
  const std::vector<std::string> saved = saved_names(options.modules_to_save, tensors);
  config["modules_to_save"] = saved.empty() ? Json() : Json(saved);
  config["rank_pattern"] = config["alpha_pattern"] = Json::object();
  config["bias"] = "none";
  config["fan_in_fan_out"] =
      std::ranges::any_of(tensors, [](const nn::Tensor& tensor) { return nn::is_transposed(tensor.layout); });
  config["init_lora_weights"] = true;
  config["inference_mode"] = true;
  if (first) config.update(parse_json_object<Json>(first->rule_json, options.path));
  return config.dump(2) + "\n";
}

}  // namespace hearth::hub
