#include "models/decoder/config.h"

#include <array>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <numbers>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxConfigBytes = 1 << 22;
constexpr int64_t kMostLayers = 4096;

/// A JSON object whose members are read by name, with messages that say where.
class Reader {
 public:
  Reader(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  bool has(const char* key) const { return object_.contains(key) && !object_.at(key).is_null(); }

  int64_t integer(const char* key, std::optional<int64_t> otherwise, int64_t least, int64_t most) const {
    if (!has(key) && otherwise) return *otherwise;
    const Json& value = at(key);
    const bool whole = value.is_number_integer() && value >= least && value <= most;
    if (!whole) fail(key, fmt::format("a whole number from {} to {}", least, most));
    return value.get<int64_t>();
  }
  double number(const char* key, double otherwise) const {
    if (!has(key)) return otherwise;
    const Json& value = at(key);
    if (!value.is_number() || !std::isfinite(value.get<double>())) fail(key, "a number");
    return value.get<double>();
  }
  bool flag(const char* key, bool otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_boolean()) fail(key, "true or false");
    return at(key).get<bool>();
  }
  std::string text(const char* key, const std::string& otherwise) const {
    if (!has(key)) return otherwise;
    if (!at(key).is_string()) fail(key, "text");
    return at(key).get<std::string>();
  }
  std::vector<double> numbers(const char* key) const {
    std::vector<double> values;
    if (!at(key).is_array()) fail(key, "a list of numbers");
    for (const Json& value : at(key)) {
      if (!value.is_number() || !(value.get<double>() > 0)) fail(key, "a list of positive numbers");
      values.push_back(value.get<double>());
    }
    return values;
  }
  /// One number or a list of them.
  std::vector<int64_t> ids(const char* key) const {
    if (!has(key)) return {};
    const Json& value = at(key);
    const Json list = value.is_array() ? value : Json::array({value});
    for (const Json& item : list) {
      if (!item.is_number_integer() || item < 0) fail(key, "token ids");
    }
    return list.get<std::vector<int64_t>>();
  }
  std::optional<Reader> object(const char* key) const {
    if (!has(key)) return std::nullopt;
    if (!at(key).is_object()) fail(key, "an object");
    return Reader(at(key), fmt::format("{}, {}", where_, key));
  }
  const Json& at(const char* key) const {
    if (!object_.contains(key)) user_error("{}: expected the key \"{}\", got none", where_, key);
    return object_.at(key);
  }
  [[noreturn]] void fail(const char* key, std::string_view expected) const {
    user_error("{}: expected {} for \"{}\", got {}", where_, expected, key,
               object_.at(key).dump().substr(0, 60));
  }
  const std::string& where() const { return where_; }

 private:
  const Json& object_;
  std::string where_;
};

RopeOptions read_scaling(const Reader& scaling, RopeOptions rope) {
  // Phi-3's first files say "su" and "yarn" for what is longrope.
  const std::string type = scaling.text("rope_type", scaling.text("type", "default"));
  rope.type = type == "su" || type == "yarn" ? "longrope" : type;
  if (rope.type != "default" && rope.type != "linear" && rope.type != "llama3" && rope.type != "longrope") {
    user_error("{}: expected rope_type default, linear, llama3 or longrope, got '{}'", scaling.where(), type);
  }
  rope.theta = scaling.number("rope_theta", rope.theta);
  rope.rotary_share = scaling.number("partial_rotary_factor", rope.rotary_share);
  rope.factor = scaling.number("factor", rope.factor);
  rope.low_freq_factor = scaling.number("low_freq_factor", rope.low_freq_factor);
  rope.high_freq_factor = scaling.number("high_freq_factor", rope.high_freq_factor);
  rope.original_positions =
      scaling.integer("original_max_position_embeddings", rope.original_positions, 0, int64_t{1} << 32);
  rope.attention_factor = scaling.number("attention_factor", 0);
  if (rope.type == "longrope") {
    rope.short_factor = scaling.numbers("short_factor");
    rope.long_factor = scaling.numbers("long_factor");
  }
  return rope;
}

void check_rope(const DecoderConfig& config, const std::string& where) {
  const RopeOptions& rope = config.rope;
  const auto rotary = static_cast<int64_t>(static_cast<double>(config.head_size) * rope.rotary_share);
  if (!(rope.theta > 0) || !(rope.factor > 0) || rotary < 2 || rotary > config.head_size || rotary % 2 != 0) {
    user_error(
        "{}: expected rotary positions over an even part of a head of {}, got a share of {} (theta {})",
        where, config.head_size, rope.rotary_share, rope.theta);
  }
  if (rope.type == "llama3" &&
      (rope.original_positions <= 0 || rope.high_freq_factor <= rope.low_freq_factor)) {
    user_error("{}: expected original_max_position_embeddings and low_freq_factor < high_freq_factor", where);
  }
  if (rope.type != "longrope") return;
  for (const auto* list : {&rope.short_factor, &rope.long_factor}) {
    if (std::ssize(*list) == rotary / 2) continue;
    user_error("{}: expected {} numbers in short_factor and long_factor, got {}", where, rotary / 2,
               list->size());
  }
}

RopeOptions read_rope(const Reader& reader, const DecoderConfig& config) {
  RopeOptions rope{.theta = reader.number("rope_theta", 10000),
                   .rotary_share = reader.number("partial_rotary_factor", 1)};
  rope.original_positions =
      reader.integer("original_max_position_embeddings", config.max_positions, 0, int64_t{1} << 32);
  if (const auto scaling = reader.object("rope_scaling")) rope = read_scaling(*scaling, rope);
  if (const auto both = reader.object("rope_parameters")) rope = read_scaling(*both, rope);
  return rope;
}

std::string gate_activation(const Reader& reader) {
  const std::string name = reader.text("hidden_activation", reader.text("hidden_act", "silu"));
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return "gelu_tanh";
  if (name == "gelu") return "gelu";
  user_error("{}: expected hidden_act silu, gelu or gelu_pytorch_tanh, got '{}'", reader.where(), name);
}

void read_sizes(const Reader& reader, DecoderConfig& config) {
  config.vocab_size = reader.integer("vocab_size", std::nullopt, 1, 1 << 24);
  config.hidden = reader.integer("hidden_size", std::nullopt, 1, 1 << 18);
  config.intermediate = reader.integer("intermediate_size", std::nullopt, 1, 1 << 20);
  config.num_layers = reader.integer("num_hidden_layers", std::nullopt, 1, kMostLayers);
  config.num_heads = reader.integer("num_attention_heads", std::nullopt, 1, 1 << 12);
  config.num_kv_heads = reader.integer("num_key_value_heads", config.num_heads, 1, config.num_heads);
  config.head_size = reader.integer("head_dim", config.hidden / config.num_heads, 2, 1 << 12);
  config.max_positions = reader.integer("max_position_embeddings", 2048, 1, int64_t{1} << 32);
  config.norm_eps = reader.number("rms_norm_eps", 1e-6);
  if (config.num_heads % config.num_kv_heads != 0) {
    user_error("{}: expected num_attention_heads to be a multiple of num_key_value_heads, got {} and {}",
               reader.where(), config.num_heads, config.num_kv_heads);
  }
}

/// Which layers see only a window: as "layer_types" lists them, or by the family's own rule.
std::vector<int64_t> read_windows(const Reader& reader, const DecoderConfig& config,
                                  const std::function<bool(int64_t layer)>& slides) {
  std::vector<int64_t> windows(static_cast<size_t>(config.num_layers), 0);
  const int64_t window = reader.integer("sliding_window", 0, 0, int64_t{1} << 32);
  if (window == 0) return windows;
  const Json* types = reader.has("layer_types") ? &reader.at("layer_types") : nullptr;
  if (types != nullptr && (!types->is_array() || std::ssize(*types) != config.num_layers))
    reader.fail("layer_types", "one entry per layer");
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const auto index = static_cast<size_t>(i);
    const bool slid = types != nullptr ? types->at(index) == "sliding_attention" : slides(i);
    if (slid) windows[index] = window;
  }
  return windows;
}

void set_llama(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
}

void set_mistral(const Reader& reader, DecoderConfig& config) {
  config.windows = read_windows(reader, config, [](int64_t) { return true; });
}

void set_qwen2(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = true;
  const bool windowed = reader.flag("use_sliding_window", false);
  const int64_t first = reader.integer("max_window_layers", config.num_layers, 0, kMostLayers);
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
  if (windowed) config.windows = read_windows(reader, config, [=](int64_t layer) { return layer >= first; });
}

void set_qwen3(const Reader& reader, DecoderConfig& config) {
  set_qwen2(reader, config);
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.qk_norm = true;
}

void set_phi3(const Reader& reader, DecoderConfig& config) {
  config.fused_projections = true;
  set_mistral(reader, config);
}

void set_gemma2(const Reader& reader, DecoderConfig& config) {
  config.head_size = reader.integer("head_dim", 256, 2, 1 << 12);
  config.norm_offset = 1;
  config.sandwich_norms = true;
  config.tied_head = reader.flag("tie_word_embeddings", true);
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  config.attention_scale = 1 / std::sqrt(reader.number("query_pre_attn_scalar", 256));
  config.attention_cap = reader.number("attn_logit_softcapping", 0);
  config.head_cap = reader.number("final_logit_softcapping", 0);
  config.windows = read_windows(reader, config, [](int64_t layer) { return layer % 2 == 0; });
}

struct Family {
  const char* name;
  void (*set)(const Reader&, DecoderConfig&);
};
/// To add a family: what differs from Llama, and a line here.
constexpr std::array<Family, 6> kFamilies = {{{"llama", set_llama},
                                              {"mistral", set_mistral},
                                              {"qwen2", set_qwen2},
                                              {"qwen3", set_qwen3},
                                              {"phi3", set_phi3},
                                              {"gemma2", set_gemma2}}};

const Family& find_family(const Reader& reader) {
  const std::string name = reader.text("model_type", "");
  std::vector<std::string> names;
  for (const Family& family : kFamilies) {
    if (name == family.name) return family;
    names.emplace_back(family.name);
  }
  user_error("{}: expected model_type {}, got '{}'{}", reader.where(), fmt::join(names, ", "), name,
             did_you_mean(name, names));
}

}  // namespace

DecoderConfig parse_decoder_config(std::string_view json, const std::string& where) {
  const Json object = parse_json_object<Json>(json, where);
  const Reader reader(object, where);
  const Family& family = find_family(reader);
  DecoderConfig config{.family = family.name};
  read_sizes(reader, config);
  config.activation = gate_activation(reader);
  config.tied_head = reader.flag("tie_word_embeddings", false);
  config.init_normal = reader.number("initializer_range", 0.02);
  config.eos_ids = reader.ids("eos_token_id");
  family.set(reader, config);
  if (config.attention_scale == 0)
    config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_size));
  config.rope = read_rope(reader, config);
  check_rope(config, where);
  return config;
}

DecoderConfig read_decoder_config(const fs::path& file) {
  if (!fs::exists(file))
    user_error("expected the config.json of a language model, got '{}', which is not there", file.string());
  return parse_decoder_config(read_file(file, kMaxConfigBytes), file.string());
}

namespace {

/// Llama 3.1's rule: long waves are stretched, short ones kept, those between blended.
double llama3_frequency(const RopeOptions& rope, double frequency) {
  const double wave = 2 * std::numbers::pi / frequency;
  const auto original = static_cast<double>(rope.original_positions);
  if (wave < original / rope.high_freq_factor) return frequency;
  if (wave > original / rope.low_freq_factor) return frequency / rope.factor;
  const double smooth =
      (original / wave - rope.low_freq_factor) / (rope.high_freq_factor - rope.low_freq_factor);
  return (1 - smooth) * frequency / rope.factor + smooth * frequency;
}

/// Longrope's factor on cos and sin: sqrt(1 + ln s / ln original), s = how far the context was stretched.
double longrope_scale(const DecoderConfig& config) {
  const auto original = static_cast<double>(config.rope.original_positions);
  const double stretch = static_cast<double>(config.max_positions) / original;
  return stretch <= 1 ? 1 : std::sqrt(1 + std::log(stretch) / std::log(original));
}

}  // namespace

RopeTable rope_table(const DecoderConfig& config, int64_t context) {
  const RopeOptions& rope = config.rope;
  const auto rotary = static_cast<int64_t>(static_cast<double>(config.head_size) * rope.rotary_share);
  const auto& factors = context > rope.original_positions ? rope.long_factor : rope.short_factor;
  RopeTable table;
  for (int64_t i = 0; i < rotary / 2; ++i) {
    double frequency = std::pow(rope.theta, -2.0 * static_cast<double>(i) / static_cast<double>(rotary));
    if (rope.type == "linear") frequency /= rope.factor;
    if (rope.type == "llama3") frequency = llama3_frequency(rope, frequency);
    if (rope.type == "longrope") frequency /= factors[static_cast<size_t>(i)];
    table.inv_freq.push_back(frequency);
  }
  if (rope.type == "longrope") table.scale = longrope_scale(config);
  if (rope.attention_factor > 0) table.scale = rope.attention_factor;
  return table;
}

nlohmann::ordered_json with_both_versions(nlohmann::ordered_json config, const DecoderConfig& decoder) {
  Json parameters = config.contains("rope_parameters") ? config.at("rope_parameters") : Json::object();
  Json scaling = config.contains("rope_scaling") ? config.at("rope_scaling") : Json();
  if (scaling.is_null() && decoder.rope.type != "default") scaling = parameters;
  if (scaling.is_object()) {
    scaling.erase("rope_theta");
    parameters.update(scaling);
  }
  parameters["rope_type"] = decoder.rope.type;
  parameters["rope_theta"] = decoder.rope.theta;
  config["rope_theta"] = decoder.rope.theta;
  config["rope_scaling"] = scaling;
  config["rope_parameters"] = parameters;
  const Json dtype = config.contains("dtype") ? config.at("dtype") : config.value("torch_dtype", Json());
  if (!dtype.is_null()) config["dtype"] = config["torch_dtype"] = dtype;
  return config;
}

}  // namespace hearth::models
