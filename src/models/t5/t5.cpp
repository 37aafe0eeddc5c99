#include "models/t5/t5.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "models/decoder/config.h"
#include "models/decoder/config_reader.h"

namespace hearth::models {
namespace {

using ir::ValueId;
using Scope = nn::Builder::Scope;

/// Returns the bucket of a relative position. `distance`: position of the key minus position of the query.
/// Computes in f32 like the original code, because rounding can change the bucket.
int64_t bucket_of(const T5Config& config, int64_t distance) {
  const int64_t half = config.num_buckets / 2, exact = half / 2;
  const int64_t first = distance > 0 ? half : 0, apart = std::abs(distance);
  if (apart < exact) return first + apart;
  const float growth =
      std::log(static_cast<float>(apart) / static_cast<float>(exact)) /
      static_cast<float>(std::log(static_cast<double>(config.max_distance) / static_cast<double>(exact)));
  return first + std::min(half - 1, exact + static_cast<int64_t>(growth * static_cast<float>(half - exact)));
}

ValueId plain_linear(nn::Builder& builder, const char* name, ValueId x, int64_t out_features) {
  return builder.linear(name, x, out_features, {.bias = false});
}

ValueId attend_t5(nn::Builder& builder, const T5Config& config, ValueId x, ValueId bias, int64_t num_rows) {
  const Scope scope(builder, "SelfAttention");
  const int64_t width = config.num_heads * config.head_size;
  const ValueId mixed =
      builder.op("attention",
                 {plain_linear(builder, "q", x, width), plain_linear(builder, "k", x, width),
                  plain_linear(builder, "v", x, width), ir::kNone, bias},
                 {{"batch", num_rows},
                  {"heads", config.num_heads},
                  {"kv_heads", config.num_heads},
                  {"head_size", config.head_size},
                  {"scale", 1.0},
                  {"causal", int64_t{0}}});
  return plain_linear(builder, "o", mixed, config.hidden);
}

ValueId feed_forward_t5(nn::Builder& builder, const T5Config& config, ValueId x) {
  const Scope scope(builder, "DenseReluDense");
  const ValueId gate = plain_linear(builder, "wi_0", x, config.intermediate);
  const ValueId up = plain_linear(builder, "wi_1", x, config.intermediate);
  const ValueId gated = builder.op("glu", {gate, up}, {{"activation", std::string("gelu_tanh")}});
  return plain_linear(builder, "wo", gated, config.hidden);
}

}  // namespace

T5Config parse_t5_config(std::string_view json, const std::string& where) {
  const auto object = parse_json_object<nlohmann::ordered_json>(json, where);
  const ConfigReader reader(object, where);
  if (reader.text("model_type", "") != "t5") reader.fail("model_type", "t5");
  if (reader.text("feed_forward_proj", "relu") != "gated-gelu")
    reader.fail("feed_forward_proj", "gated-gelu");
  T5Config config{.vocab_size = reader.integer("vocab_size", 32128, 1, 1 << 24),
                  .hidden = reader.integer("d_model", 512, 1, 1 << 16),
                  .intermediate = reader.integer("d_ff", 2048, 1, 1 << 18),
                  .num_layers = reader.integer("num_layers", 6, 1, 1 << 10),
                  .num_heads = reader.integer("num_heads", 8, 1, 1 << 10),
                  .head_size = reader.integer("d_kv", 64, 1, 1 << 10),
                  .norm_eps = reader.number("layer_norm_epsilon", 1e-6),
                  .num_buckets = reader.integer("relative_attention_num_buckets", 32, 4, 1 << 16),
                  .max_distance = reader.integer("relative_attention_max_distance", 128, 1, 1 << 20),
                  .pad_id = reader.integer("pad_token_id", 0, 0, 1 << 24)};
  if (config.max_distance <= config.num_buckets / 4)
    reader.fail("relative_attention_max_distance", "more than a quarter of relative_attention_num_buckets");
  return config;
}

T5Config read_t5_config(const fs::path& file) {
  return parse_t5_config(read_file(file, kMaxConfigBytes), file.string());
}

std::vector<float> t5_bias(const T5Config& config, std::span<const float> table, int64_t num_tokens) {
  std::vector<float> bias(static_cast<size_t>(config.num_heads * num_tokens * num_tokens));
  float* out = bias.data();
  for (int64_t head = 0; head < config.num_heads; ++head) {
    for (int64_t query = 0; query < num_tokens; ++query) {
      for (int64_t key = 0; key < num_tokens; ++key)
        *out++ = table[static_cast<size_t>(bucket_of(config, key - query) * config.num_heads + head)];
    }
  }
  return bias;
}

ValueId build_t5_layer(nn::Builder& builder, const T5Config& config, ValueId x, ValueId bias,
                       int64_t num_rows) {
  {
    const Scope scope(builder, "layer.0");
    const ValueId normed = builder.rms_norm("layer_norm", x, config.norm_eps);
    x = builder.add(x, attend_t5(builder, config, normed, bias, num_rows));
  }
  const Scope scope(builder, "layer.1");
  return builder.add(x, feed_forward_t5(builder, config, builder.rms_norm("layer_norm", x, config.norm_eps)));
}

}  // namespace hearth::models
