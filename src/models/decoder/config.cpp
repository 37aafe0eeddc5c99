#include "models/decoder/config.h"

#include <fmt/ranges.h>

#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/foreign.h"
#include "base/json.h"
#include "base/text.h"
#include "models/decoder/config_reader.h"
#include "models/decoder/quantization.h"
#include "models/unsupported.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;
using Positions = DecoderConfig::Positions;
using Reader = ConfigReader;

/// Max number of layers, eight times the deepest model's. Planning time grows with the square of this number.
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxExperts = 1024;
/// Max number of experts of a model, twice that of the largest supported model.
constexpr int64_t kMaxTotalExperts = 1 << 14;

std::string activation_of(const Reader& reader, const char* key, const char* default_value) {
  const std::string name = reader.text(key, default_value);
  if (name == "silu" || name == "swish") return "silu";
  if (name == "gelu_pytorch_tanh" || name == "gelu_new") return "gelu_tanh";
  if (name == "gelu") return "gelu";
  user_error("{}: expected {} silu, gelu or gelu_pytorch_tanh, got '{}'", reader.where(), key, name);
}

/// Values that transformers assumes for keys that config.json lacks; they differ between families.
struct Defaults {
  int64_t max_positions = 2048;
  double norm_eps = 1e-6;
  int64_t num_kv_heads = 0;  ///< 0: equal to num_heads
  int64_t head_size = 0;     ///< 0: hidden / num_heads
  bool tied_head = false;
  const char* activation_key = "hidden_act";
  const char* activation = "silu";
  RopeDefaults rope = {};
};

/// Throws a UserError for keys with which transformers computes something that is not supported here.
void check_unsupported_keys(const Json& config, const Reader& reader) {
  check_quantization(config, reader.where());
  if (!reader.flag("is_causal", true)) reader.fail("is_causal", "true");
  if (reader.flag("use_bidirectional_attention", false)) reader.fail("use_bidirectional_attention", "false");
  if (reader.has("per_layer_config")) reader.fail("per_layer_config", "no settings per layer");
}

void read_usual_sizes(const Reader& reader, const Defaults& defaults, DecoderConfig& config) {
  config.vocab_size = reader.integer("vocab_size", std::nullopt, 1, 1 << 24);
  config.hidden = reader.integer("hidden_size", std::nullopt, 1, 1 << 18);
  config.intermediate = reader.integer("intermediate_size", std::nullopt, 1, 1 << 20);
  config.num_layers = reader.integer("num_hidden_layers", std::nullopt, 1, kMaxLayers);
  config.num_heads = reader.integer("num_attention_heads", std::nullopt, 1, 1 << 12);
  const bool all_alike = reader.has_null("num_key_value_heads") || defaults.num_kv_heads == 0;
  config.num_kv_heads =
      reader.integer("num_key_value_heads", all_alike ? config.num_heads : defaults.num_kv_heads, 1, 1 << 12);
  const bool shared = reader.has_null("head_dim") || defaults.head_size == 0;
  config.head_size =
      reader.integer("head_dim", shared ? config.hidden / config.num_heads : defaults.head_size, 2, 1 << 12);
  config.max_positions =
      reader.integer("max_position_embeddings", defaults.max_positions, 1, int64_t{1} << 32);
  config.norm_eps = reader.number("rms_norm_eps", defaults.norm_eps);
  if (config.num_heads % config.num_kv_heads != 0) {
    user_error("{}: expected num_attention_heads to be a multiple of num_key_value_heads, got {} and {}",
               reader.where(), config.num_heads, config.num_kv_heads);
  }
}

/// Reads "sliding_window" in tokens; 0 (no window) if it is null.
int64_t read_window(const Reader& reader, int64_t default_value) {
  if (reader.has_null("sliding_window")) return 0;
  return reader.integer("sliding_window", default_value, 1, int64_t{1} << 32);
}

/// Reads "layer_types": true for layers with a sliding window; nullopt if the key is absent.
std::optional<std::vector<bool>> read_layer_types(const Reader& reader, int64_t num_layers) {
  if (!reader.has("layer_types")) return std::nullopt;
  const Json& types = reader.at("layer_types");
  if (!types.is_array() || std::ssize(types) != num_layers)
    reader.fail("layer_types", fmt::format("a list of {} entries, one per layer,", num_layers));
  std::vector<bool> slides;
  for (const Json& type : types) {
    if (type != "full_attention" && type != "sliding_attention") {
      user_error("{}: expected layer_types full_attention and sliding_attention, got {}", reader.where(),
                 type.dump().substr(0, 60));
    }
    slides.push_back(type == "sliding_attention");
  }
  return slides;
}

/// Returns the sliding window of each layer in tokens (0: full attention). "layer_types" decides which layers
/// have a window; without this key, `slides`, the family's default.
std::vector<int64_t> read_windows(const Reader& reader, const DecoderConfig& config, int64_t window,
                                  const std::function<bool(int64_t layer)>& slides) {
  const auto listed = read_layer_types(reader, config.num_layers);
  std::vector<int64_t> windows(static_cast<size_t>(config.num_layers), 0);
  for (int64_t i = 0; i < config.num_layers; ++i) {
    const auto index = static_cast<size_t>(i);
    if (listed && (*listed)[index] && window == 0)
      reader.fail("layer_types", "full_attention only, because sliding_window is not used,");
    if (window > 0 && (listed ? (*listed)[index] : slides(i))) windows[index] = window;
  }
  return windows;
}

/// Returns the windows for a family in which transformers uses one window for all layers and ignores
/// "layer_types". Throws a UserError if "layer_types" lists something else.
std::vector<int64_t> read_one_window(const Reader& reader, const DecoderConfig& config, int64_t window) {
  const auto listed = read_layer_types(reader, config.num_layers);
  if (listed && std::ranges::find(*listed, window == 0) != listed->end())
    reader.fail("layer_types", window > 0 ? "sliding_attention only" : "full_attention only");
  return std::vector<int64_t>(static_cast<size_t>(config.num_layers), window);
}

void set_llama(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.windows = read_one_window(reader, config, 0);
}

void set_mistral(const Reader& reader, DecoderConfig& config) {
  config.windows = read_windows(reader, config, read_window(reader, 4096), [](int64_t) { return true; });
}

void set_qwen2(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = true;
  const int64_t window = reader.flag("use_sliding_window", false) ? read_window(reader, 4096) : 0;
  const int64_t first = reader.integer("max_window_layers", 28, 0, 1 << 30);
  config.windows = read_windows(reader, config, window, [=](int64_t layer) { return layer >= first; });
}

void set_qwen3(const Reader& reader, DecoderConfig& config) {
  set_qwen2(reader, config);
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.qk_norm = true;
}

void set_phi3(const Reader& reader, DecoderConfig& config) {
  config.fused_projections = true;
  config.windows = read_one_window(reader, config, read_window(reader, 0));
}

double read_positive(const Reader& reader, const char* key, double default_value) {
  const double value = reader.number(key, default_value);
  if (!(value > 0)) reader.fail(key, "a positive number");
  return value;
}

/// Reads a soft cap (see DecoderConfig::head_cap); 0 if the key is null.
double read_cap(const Reader& reader, const char* key, double default_value) {
  if (reader.has_null(key)) return 0;
  const double cap = reader.number(key, default_value);
  if (!(cap > 0)) reader.fail(key, "a positive number or null");
  return cap;
}

void set_gemma2(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.norm_offset = 1;
  config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  config.attention_scale = 1 / std::sqrt(read_positive(reader, "query_pre_attn_scalar", 256));
  config.attention_cap = read_cap(reader, "attn_logit_softcapping", 50);
  config.head_cap = read_cap(reader, "final_logit_softcapping", 30);
  config.windows =
      read_windows(reader, config, read_window(reader, 4096), [](int64_t layer) { return layer % 2 == 0; });
}

/// Selects the RoPE of each layer: local_rope for layers with a sliding window, rope for the others.
void set_rope_by_window(DecoderConfig& config) {
  for (const int64_t window : config.windows)
    config.positions.push_back(window > 0 ? Positions::local_rope : Positions::rope);
}

void set_olmo_norms(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.pre_norms = false;
  config.post_norms = config.qk_norm_whole = true;
}

void set_olmo2(const Reader& reader, DecoderConfig& config) {
  set_olmo_norms(reader, config);
  config.windows = read_one_window(reader, config, 0);
}

void set_olmo3(const Reader& reader, DecoderConfig& config) {
  set_olmo_norms(reader, config);
  config.windows = read_windows(reader, config, read_window(reader, 4096),
                                [](int64_t layer) { return (layer + 1) % 4 != 0; });
  set_rope_by_window(config);
}

void set_granite(const Reader& reader, DecoderConfig& config) {
  set_llama(reader, config);
  config.embedding_scale = read_positive(reader, "embedding_multiplier", 1);
  config.residual_scale = read_positive(reader, "residual_multiplier", 1);
  config.attention_scale = read_positive(reader, "attention_multiplier", 1);
  config.hidden_scale = 1 / read_positive(reader, "logits_scaling", 1);
}

/// Reads "no_rope_layers". In contrast to its name, its entry is 1 for layers with RoPE.
std::vector<Positions> read_no_rope(const Reader& reader, int64_t num_layers) {
  const int64_t interval = reader.integer("no_rope_layer_interval", 4, 1, 1 << 30);
  std::vector<Positions> positions;
  if (!reader.has("no_rope_layers")) {
    for (int64_t i = 1; i <= num_layers; ++i)
      positions.push_back(i % interval != 0 ? Positions::rope : Positions::none);
    return positions;
  }
  const Json& listed = reader.at("no_rope_layers");
  if (!listed.is_array() || std::ssize(listed) < num_layers)
    reader.fail("no_rope_layers", fmt::format("a list of {} entries, one per layer,", num_layers));
  for (const Json& entry : listed) {
    if (entry != 0 && entry != 1) reader.fail("no_rope_layers", "a list of 0 and 1");
    positions.push_back(entry == 1 ? Positions::rope : Positions::none);
  }
  positions.resize(static_cast<size_t>(num_layers));
  return positions;
}

void set_smollm3(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.mlp_bias = reader.flag("mlp_bias", false);
  config.positions = read_no_rope(reader, config.num_layers);
  const int64_t window = reader.flag("use_sliding_window", false) ? read_window(reader, 0) : 0;
  config.windows = read_windows(reader, config, window, [&](int64_t layer) {
    return config.positions[static_cast<size_t>(layer)] == Positions::none;
  });
}

void set_gemma3(const Reader& reader, DecoderConfig& config) {
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.norm_offset = 1;
  config.qk_norm = config.post_norms = true;
  config.embedding_scale = std::sqrt(static_cast<double>(config.hidden));
  config.attention_scale = 1 / std::sqrt(read_positive(reader, "query_pre_attn_scalar", 256));
  // attn_logit_softcapping is not read: transformers lists it among this family's keys but ignores it.
  if (reader.has("final_logit_softcapping")) config.head_cap = read_cap(reader, "final_logit_softcapping", 0);
  const int64_t pattern = reader.integer("sliding_window_pattern", 6, 1, 1 << 30);
  config.windows = read_windows(reader, config, read_window(reader, 4096),
                                [=](int64_t layer) { return (layer + 1) % pattern != 0; });
  set_rope_by_window(config);
}

/// Reads the sizes under GPT-2's key names (n_embd). Throws a UserError for the standard names (hidden_size).
void read_gpt2_sizes(const Reader& reader, const Defaults& defaults, DecoderConfig& config) {
  for (const char* key :
       {"hidden_size", "num_hidden_layers", "num_attention_heads", "max_position_embeddings"}) {
    if (reader.has(key)) reader.fail(key, "no value (use n_embd, n_layer, n_head and n_positions)");
  }
  config.vocab_size = reader.integer("vocab_size", std::nullopt, 1, 1 << 24);
  config.hidden = reader.integer("n_embd", std::nullopt, 1, 1 << 18);
  config.intermediate = reader.integer("n_inner", 4 * config.hidden, 1, 1 << 20);
  config.num_layers = reader.integer("n_layer", std::nullopt, 1, kMaxLayers);
  config.num_heads = config.num_kv_heads = reader.integer("n_head", std::nullopt, 1, 1 << 12);
  config.head_size = config.hidden / config.num_heads;
  config.max_positions = reader.integer("n_positions", defaults.max_positions, 1, 1 << 24);
  config.norm_eps = reader.number("layer_norm_epsilon", defaults.norm_eps);
  if (config.hidden % config.num_heads != 0 || config.head_size < 2 || config.head_size > 1 << 12)
    reader.fail("n_head",
                fmt::format("a divisor of n_embd {} with heads of 2 to 4096 elements", config.hidden));
}

void set_gpt2(const Reader& reader, DecoderConfig& config) {
  if (reader.flag("add_cross_attention", false)) reader.fail("add_cross_attention", "false");
  if (reader.has("pruned_heads") && !reader.at("pruned_heads").empty())
    reader.fail("pruned_heads", "no pruned heads");
  config.qkv_bias = config.out_bias = config.mlp_bias = true;
  config.fused_projections = config.transposed = config.layer_norms = config.learned_positions = true;
  config.gated_mlp = false;
  if (!reader.flag("scale_attn_weights", true)) config.attention_scale = 1;
  config.scale_by_layer = reader.flag("scale_attn_by_inverse_layer_idx", false);
  config.branch_init_normal = config.init_normal / std::sqrt(2.0 * static_cast<double>(config.num_layers));
  config.positions.assign(static_cast<size_t>(config.num_layers), Positions::none);
  config.windows.assign(static_cast<size_t>(config.num_layers), 0);
}

/// Throws a UserError for router options that change training and are not implemented.
void check_router(const Reader& reader) {
  if (reader.flag("output_router_logits", false)) reader.fail("output_router_logits", "false");
  if (reader.number("router_jitter_noise", 0) != 0) reader.fail("router_jitter_noise", "0");
}

/// Reads the number of experts. `key`: the family's key in transformers 4; `other`: for transformers 5 only.
int64_t read_num_experts(const Reader& reader, const char* key, const char* other, int64_t default_value) {
  const int64_t count = reader.integer(reader.has(key) ? key : other, default_value, 1, kMaxExperts);
  if (reader.integer(other, count, 1, kMaxExperts) != count)
    reader.fail(other, fmt::format("the value of \"{}\", {},", key, count));
  return count;
}

int64_t read_per_token(const Reader& reader, int64_t count, int64_t default_value) {
  const int64_t found = reader.integer("num_experts_per_tok", default_value, 1, kMaxExperts);
  if (found > count)
    user_error("{}: expected num_experts_per_tok of at most {} experts, got {}", reader.where(), count,
               found);
  return found;
}

void set_mixtral(const Reader& reader, DecoderConfig& config) {
  check_router(reader);
  config.windows = read_one_window(reader, config, read_window(reader, 0));
  const int64_t count = read_num_experts(reader, "num_local_experts", "num_experts", 8);
  config.experts = {.count = count,
                    .per_token = read_per_token(reader, count, 2),
                    .intermediate = config.intermediate,
                    .normalized = true,
                    .mixtral_names = true,
                    .layers = std::vector<bool>(static_cast<size_t>(config.num_layers), true)};
}

/// True for layers with experts: each decoder_sparse_step-th one, except those in "mlp_only_layers".
std::vector<bool> read_sparse_layers(const Reader& reader, int64_t num_layers) {
  const int64_t step = reader.integer("decoder_sparse_step", 1, 1, 1 << 30);
  std::vector<bool> layers;
  for (int64_t i = 1; i <= num_layers; ++i) layers.push_back(i % step == 0);
  for (const int64_t dense : reader.ids("mlp_only_layers")) {
    if (dense < num_layers) layers[static_cast<size_t>(dense)] = false;
  }
  return layers;
}

void set_qwen3_moe(const Reader& reader, DecoderConfig& config) {
  check_router(reader);
  config.qkv_bias = config.out_bias = reader.flag("attention_bias", false);
  config.qk_norm = true;
  const int64_t window = reader.flag("use_sliding_window", false) ? read_window(reader, 4096) : 0;
  config.windows = read_one_window(reader, config, window);
  const int64_t count = read_num_experts(reader, "num_experts", "num_local_experts", 128);
  config.experts = {.count = count,
                    .per_token = read_per_token(reader, count, 8),
                    .intermediate = reader.integer("moe_intermediate_size", 768, 1, 1 << 20),
                    .normalized = reader.flag("norm_topk_prob", false),
                    .layers = read_sparse_layers(reader, config.num_layers)};
}

struct Family {
  const char* name;
  void (*set)(const Reader&, DecoderConfig&);
  Defaults defaults;
  void (*read_sizes)(const Reader&, const Defaults&, DecoderConfig&) = read_usual_sizes;
};
/// Supported families. A new family needs a function that sets its differences from Llama, and a row here.
constexpr std::array kFamilies = {
    Family{"llama", set_llama, {}},
    Family{"mistral", set_mistral, {.max_positions = 131072, .num_kv_heads = 8}},
    Family{"qwen2", set_qwen2, {.max_positions = 32768, .num_kv_heads = 32}},
    Family{"qwen3", set_qwen3, {.max_positions = 32768, .num_kv_heads = 32, .head_size = 128}},
    Family{"phi3",
           set_phi3,
           {.max_positions = 4096, .norm_eps = 1e-5, .rope = {.original_positions = 4096, .is_phi = true}}},
    Family{"gemma2",
           set_gemma2,
           {.max_positions = 8192,
            .num_kv_heads = 4,
            .head_size = 256,
            .tied_head = true,
            .activation_key = "hidden_activation",
            .activation = "gelu_pytorch_tanh"}},
    Family{"olmo2", set_olmo2, {.norm_eps = 1e-5}},
    Family{"olmo3",
           set_olmo3,
           {.norm_eps = 1e-5, .rope = {.theta = 500000, .local_theta = 500000, .needs_equal_thetas = true}}},
    Family{"granite", set_granite, {}},
    Family{"smollm3",
           set_smollm3,
           {.max_positions = 32768, .num_kv_heads = 4, .tied_head = true, .rope = {.theta = 2000000}}},
    Family{"gemma3_text",
           set_gemma3,
           {.max_positions = 131072,
            .num_kv_heads = 4,
            .head_size = 256,
            .tied_head = true,
            .activation_key = "hidden_activation",
            .activation = "gelu_pytorch_tanh",
            .rope = {.theta = 1000000, .local_theta = 10000}}},
    Family{"gpt2",
           set_gpt2,
           {.max_positions = 1024,
            .norm_eps = 1e-5,
            .tied_head = true,
            .activation_key = "activation_function",
            .activation = "gelu_new"},
           read_gpt2_sizes},
    Family{"qwen3_moe", set_qwen3_moe, {.max_positions = 32768, .num_kv_heads = 4}},
    Family{"mixtral",
           set_mixtral,
           {.max_positions = 131072, .norm_eps = 1e-5, .num_kv_heads = 8, .rope = {.theta = 1000000}}}};

/// Normalizes spelling variants of a name: "Qwen3-MoE" and "qwen3_moe" become equal.
std::string plain_letters(std::string_view name) {
  std::string letters;
  for (const char c : name) {
    if (c != '-' && c != '_' && c != '.' && c != ' ')
      letters += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return letters;
}

const Family& find_family(const Reader& reader) {
  const std::string name = reader.text("model_type", "");
  std::vector<std::string> names;
  std::string meant, advice = "; an edited model_type would load weights that do not fit it";
  for (const Family& family : kFamilies) {
    if (name == family.name) return family;
    if (plain_letters(name) == plain_letters(family.name)) {
      meant = fmt::format(" (did you mean '{}'?)", family.name);
      advice = "";
    }
    names.emplace_back(family.name);
  }
  if (const std::string_view known = unsupported_family(name); !known.empty())
    meant = fmt::format(" ({})", known);
  user_error("{}: model_type '{}'{} is not supported; supported are {}{}", reader.where(), name, meant,
             fmt::join(names, ", "), advice);
}

/// Returns keys and values of the dropout rates above 0 that transformers uses when it trains this family.
std::vector<std::pair<std::string, double>> read_dropouts(const Reader& reader, std::string_view family) {
  std::vector<std::pair<std::string, double>> rates;
  const auto read = [&](const char* key, double default_value) {
    if (const double rate = reader.number(key, default_value); rate > 0) rates.emplace_back(key, rate);
  };
  const bool is_gpt2 = family == "gpt2";
  if (is_gpt2 || family == "phi3") {
    read("embd_pdrop", is_gpt2 ? 0.1 : 0);
    read("resid_pdrop", is_gpt2 ? 0.1 : 0);
  }
  read(is_gpt2 ? "attn_pdrop" : "attention_dropout", is_gpt2 ? 0.1 : 0);
  return rates;
}

void set_ropes(const Reader& reader, const RopeDefaults& defaults, DecoderConfig& config) {
  const RopeSizes sizes{.head_size = config.head_size, .max_positions = config.max_positions};
  if (defaults.local_theta == 0) {
    config.rope = read_rope(reader, defaults, sizes);
    return;
  }
  const RopesByLayer ropes = read_ropes_by_layer(reader, defaults, sizes);
  config.rope = ropes.full;
  config.local_rope = ropes.local;
}

void check_num_experts(const Reader& reader, const DecoderConfig& config) {
  const int64_t most = kMaxTotalExperts / config.num_layers;
  if (config.experts.count <= most) return;
  user_error("{}: expected at most {} experts in each of {} layers, got {}", reader.where(), most,
             config.num_layers, config.experts.count);
}

}  // namespace

DecoderConfig parse_decoder_config(std::string_view json, const std::string& where) {
  const Json object = parse_json_object<Json>(json, where);
  const Reader reader(object, where);
  const Family& family = find_family(reader);
  check_unsupported_keys(object, reader);
  DecoderConfig config{.family = family.name};
  family.read_sizes(reader, family.defaults, config);
  config.activation = activation_of(reader, family.defaults.activation_key, family.defaults.activation);
  config.tied_head = reader.flag("tie_word_embeddings", family.defaults.tied_head);
  config.init_normal = reader.number("initializer_range", 0.02);
  config.eos_ids = reader.ids("eos_token_id");
  family.set(reader, config);
  config.dropouts = read_dropouts(reader, family.name);
  check_num_experts(reader, config);
  if (config.attention_scale == 0)
    config.attention_scale = 1 / std::sqrt(static_cast<double>(config.head_size));
  if (!config.learned_positions) set_ropes(reader, family.defaults.rope, config);
  return config;
}

std::string read_decoder_json(const fs::path& file) {
  if (!fs::exists(file)) refuse_unsupported_pipeline(file.parent_path());
  if (!fs::exists(file))
    user_error("expected the config.json of a language model, but there is no '{}'{}", file.string(),
               download_advice(file.parent_path()));
  std::string json = read_file(file, kMaxConfigBytes);
  check_quantization(parse_json_object<Json>(json, file.string()), file.string());
  return json;
}

DecoderConfig read_decoder_config(const fs::path& file) {
  return parse_decoder_config(read_decoder_json(file), file.string());
}

}  // namespace hearth::models
