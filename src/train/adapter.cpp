#include "train/adapter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"

namespace hearth::train {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxAdapterConfigBytes = 1 << 20;
constexpr const char* kAllLinear = "all-linear";

/// Keys of PEFT that change what an adapter computes, in ways that are not supported.
constexpr const char* kUnsupported[] = {"use_dora",        "use_qalora",          "fan_in_fan_out",
                                        "lora_bias",       "rank_pattern",        "alpha_pattern",
                                        "exclude_modules", "layers_to_transform", "layer_replication",
                                        "megatron_config", "target_parameters",   "trainable_token_indices"};

fs::path config_of(const fs::path& file_or_folder) {
  const fs::path folder = fs::is_directory(file_or_folder) ? file_or_folder : file_or_folder.parent_path();
  return folder / kAdapterConfig;
}

[[noreturn]] void refuse(const fs::path& file, const char* key, const Json& config,
                         std::string_view expected) {
  user_error("{}: expected {} for \"{}\", got {}", file.string(), expected, key,
             config.value(key, Json()).dump().substr(0, 60));
}

void check_plain(const fs::path& file, const Json& config) {
  if (config.value("peft_type", Json()) != "LORA") refuse(file, "peft_type", config, "\"LORA\"");
  for (const char* key : kUnsupported) {
    const Json value = config.value(key, Json());
    if (!value.empty() && value != false) refuse(file, key, config, "nothing (a plain LoRA)");
  }
  if (config.value("bias", Json("none")) != "none") refuse(file, "bias", config, "\"none\"");
  // PiSSA, OLoRA and their like change the base model before they train.
  const Json start = config.value("init_lora_weights", Json());
  if (start.is_string() && start != "gaussian" && start != "eva" && start != "orthogonal")
    refuse(file, "init_lora_weights", config, "true");
}

std::vector<std::string> read_names(const fs::path& file, const Json& config, const char* key) {
  const Json value = config.value(key, Json());
  if (value.is_null()) return {};
  if (value == kAllLinear) return {kAllLinear};
  const auto is_text = [](const Json& item) { return item.is_string(); };
  if (!value.is_array() || !std::ranges::all_of(value, is_text))
    refuse(file, key, config, "a list of names or \"all-linear\"");
  return value.get<std::vector<std::string>>();
}

bool all_linear(const std::vector<std::string>& targets) {
  return std::ranges::find(targets, kAllLinear) != targets.end();
}

/// The names of the adapted layers, each once.
std::vector<std::string> adapted_names(const std::vector<nn::Tensor>& tensors) {
  constexpr std::string_view kEnd = ".lora_A.weight";
  std::vector<std::string> modules;
  for (const nn::Tensor& tensor : tensors) {
    if (tensor.adapter && tensor.name.ends_with(kEnd))
      modules.push_back(tensor.name.substr(0, tensor.name.size() - kEnd.size()));
  }
  return nn::short_names(modules);
}

/// 16, not 16.0: what is whole in PEFT's own files.
Json number(double value) {
  if (value == std::floor(value) && std::abs(value) < 1e15) return static_cast<int64_t>(value);
  return value;
}

}  // namespace

double AdapterOptions::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (rslora ? std::sqrt(r) : r);
}

nn::Adapter builder_adapter(const AdapterOptions& options) {
  if (!options.wanted()) return {};
  const AdapterOptions& used = options.path.empty() ? options : read_adapter_config(options.path).options;
  return {.rank = used.rank,
          .scale = used.scale(),
          .dropout = options.dropout,
          .targets = all_linear(used.targets) ? std::vector<std::string>{} : used.targets,
          .whole = used.modules_to_save,
          .quantised = ops::quantisation_from_name(options.quantize)};
}

void check_untied(const nn::Adapter& adapter) {
  for (const std::string& name : adapter.whole) {
    if (!name.ends_with("embed_tokens") && !name.ends_with("lm_head")) continue;
    user_error(
        "expected adapter.modules_to_save without '{}', because this model ties embed_tokens and lm_head; "
        "try adapter.targets=all-linear with a higher adapter.rank",
        name);
  }
}

fs::path adapter_weights(const fs::path& file_or_folder) {
  if (!fs::is_directory(file_or_folder)) return file_or_folder;
  fs::path file = file_or_folder / kAdapterFile;
  if (!fs::exists(file)) refuse_foreign_weights(file_or_folder);
  return file;
}

AdapterConfig read_adapter_config(const fs::path& file_or_folder) {
  const fs::path file = config_of(file_or_folder);
  const Json config = parse_json_object<Json>(read_file(file, kMaxAdapterConfigBytes), file.string());
  check_plain(file, config);
  const Json rank = config.value("r", Json()), alpha = config.value("lora_alpha", Json());
  if (!rank.is_number_integer() || rank < 1 || rank > 1 << 16)
    refuse(file, "r", config, "a rank from 1 to 65536");
  if (!alpha.is_number()) refuse(file, "lora_alpha", config, "a number");
  const Json base = config.value("base_model_name_or_path", Json());
  AdapterConfig read{.options = {.name = "lora",
                                 .rank = rank.get<int64_t>(),
                                 .alpha = alpha.get<double>(),
                                 .rslora = config.value("use_rslora", Json()) == true,
                                 .targets = read_names(file, config, "target_modules"),
                                 .modules_to_save = read_names(file, config, "modules_to_save")},
                     .base = base.is_string() ? base.get<std::string>() : ""};
  if (read.options.targets.empty()) refuse(file, "target_modules", config, "a list of names");
  return read;
}

std::string adapter_config_json(const AdapterOptions& options, const std::vector<nn::Tensor>& tensors,
                                const fs::path& base) {
  const AdapterOptions used = options.path.empty() ? options : read_adapter_config(options.path).options;
  Json config;
  config["peft_type"] = "LORA";
  config["task_type"] = "CAUSAL_LM";
  config["base_model_name_or_path"] = fs::absolute(base).lexically_normal().string();
  config["r"] = used.rank;
  config["lora_alpha"] = number(used.alpha);
  config["lora_dropout"] = number(options.dropout);
  config["use_rslora"] = used.rslora;
  config["use_dora"] = false;
  config["target_modules"] = all_linear(used.targets) ? adapted_names(tensors) : used.targets;
  config["modules_to_save"] = used.modules_to_save.empty() ? Json() : Json(used.modules_to_save);
  config["rank_pattern"] = config["alpha_pattern"] = Json::object();
  config["bias"] = "none";
  config["fan_in_fan_out"] = false;
  config["init_lora_weights"] = true;
  config["inference_mode"] = true;
  return config.dump(2) + "\n";
}

}  // namespace hearth::train
