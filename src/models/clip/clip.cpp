#include "models/clip/clip.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "models/decoder/config.h"
#include "models/decoder/config_reader.h"

namespace hearth::models {
namespace {

using ir::ValueId;

constexpr int64_t kOldEos = 2;

std::string clip_activation(const ConfigReader& reader) {
  std::string name = reader.text("hidden_act", "quick_gelu");
  if (name == "quick_gelu" || name == "gelu") return name;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return "gelu_tanh";
  reader.fail("hidden_act", "quick_gelu, gelu or gelu_pytorch_tanh");
}

ValueId activate_clip(nn::Builder& builder, const std::string& activation, ValueId x) {
  if (activation != "quick_gelu") return builder.op(activation, {x});
  // quick_gelu(x) = x * sigmoid(1.702 * x).
  constexpr double kSlope = 1.702;
  x = builder.op("silu", {builder.op("scale", {x}, {{"factor", kSlope}})});
  return builder.op("scale", {x}, {{"factor", 1 / kSlope}});
}

ValueId attend_clip(nn::Builder& builder, const ClipConfig& config, ValueId x, int64_t num_rows) {
  const nn::Builder::Scope scope(builder, "self_attn");
  const int64_t head_size = config.hidden / config.num_heads;
  const ValueId mixed =
      builder.op("attention",
                 {builder.linear("q_proj", x, config.hidden), builder.linear("k_proj", x, config.hidden),
                  builder.linear("v_proj", x, config.hidden)},
                 {{"batch", num_rows},
                  {"heads", config.num_heads},
                  {"kv_heads", config.num_heads},
                  {"head_size", head_size},
                  {"scale", 1 / std::sqrt(static_cast<double>(head_size))},
                  {"causal", int64_t{1}}});
  return builder.linear("out_proj", mixed, config.hidden);
}

}  // namespace

ClipConfig parse_clip_config(std::string_view json, const std::string& where) {
  const auto object = parse_json_object<nlohmann::ordered_json>(json, where);
  const ConfigReader reader(object, where);
  if (reader.text("model_type", "") != "clip_text_model") reader.fail("model_type", "clip_text_model");
  ClipConfig config{.vocab_size = reader.integer("vocab_size", 49408, 1, 1 << 24),
                    .hidden = reader.integer("hidden_size", 512, 1, 1 << 16),
                    .intermediate = reader.integer("intermediate_size", 2048, 1, 1 << 18),
                    .num_layers = reader.integer("num_hidden_layers", 12, 1, 1 << 10),
                    .num_heads = reader.integer("num_attention_heads", 8, 1, 1 << 10),
                    .num_positions = reader.integer("max_position_embeddings", 77, 2, 1 << 16),
                    .norm_eps = reader.number("layer_norm_eps", 1e-5),
                    .activation = clip_activation(reader),
                    .eos_id = reader.integer("eos_token_id", 49407, 0, 1 << 24)};
  if (config.hidden % config.num_heads != 0)
    reader.fail("num_attention_heads", fmt::format("a divisor of hidden_size {}", config.hidden));
  return config;
}

ClipConfig read_clip_config(const fs::path& file) {
  return parse_clip_config(read_file(file, kMaxConfigBytes), file.string());
}

ValueId build_clip_layer(nn::Builder& builder, const ClipConfig& config, ValueId x, int64_t num_rows) {
  x = builder.add(
      x, attend_clip(builder, config, builder.layer_norm("layer_norm1", x, config.norm_eps), num_rows));
  const ValueId normed = builder.layer_norm("layer_norm2", x, config.norm_eps);
  const nn::Builder::Scope scope(builder, "mlp");
  const ValueId branch = builder.linear("fc1", normed, config.intermediate);
  return builder.add(x,
                     builder.linear("fc2", activate_clip(builder, config.activation, branch), config.hidden));
}

size_t clip_pooled_token(const ClipConfig& config, std::span<const int32_t> ids) {
  const auto found =
      config.eos_id == kOldEos ? std::ranges::max_element(ids) : std::ranges::find(ids, config.eos_id);
  return found == ids.end() ? 0 : static_cast<size_t>(found - ids.begin());
}

}  // namespace hearth::models
