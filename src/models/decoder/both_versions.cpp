#include <nlohmann/json.hpp>

#include "models/decoder/config.h"

namespace hearth::models {
namespace {

using Json = nlohmann::ordered_json;

/// Returns a value of rope_scaling that versions 4 and 5 of transformers interpret equally.
Json common_scaling(const Json& config, const DecoderConfig& decoder) {
  const RopeOptions& rope = decoder.rope;
  if (rope.type == "default") return {};
  const bool is_old = config.contains("rope_scaling") && config.at("rope_scaling").is_object();
  Json scaling = config.at(is_old ? "rope_scaling" : "rope_parameters");
  if (!is_old && decoder.local_rope) scaling = scaling.at("full_attention");
  const bool is_plain = !scaling.contains("factor") && !scaling.contains("attention_factor");
  // transformers 4 accepts exactly these three keys for Phi-3.
  if (decoder.family == "phi3" && is_plain)
    return {{"type", rope.type}, {"short_factor", rope.short_factor}, {"long_factor", rope.long_factor}};
  // transformers 4 accepts exactly these two keys for Olmo 2.
  if (decoder.family == "olmo2" && rope.type == "linear")
    return {{"type", rope.type}, {"factor", rope.factor}};
  for (const char* key : {"rope_theta", "partial_rotary_factor", "type"}) scaling.erase(key);
  scaling["rope_type"] = rope.type;
  // transformers 4 ignores "factor" if the config has original_max_position_embeddings, so attention_factor
  // is written too.
  if (rope.type == "longrope") scaling["attention_factor"] = rope.attention_factor;
  return scaling;
}

void add_ropes(Json& config, const DecoderConfig& decoder) {
  const RopeOptions& rope = decoder.rope;
  const Json scaling = common_scaling(config, decoder);
  Json parameters = scaling.is_null() ? Json::object() : scaling;
  parameters.erase("type");
  parameters["rope_type"] = rope.type;
  config["rope_theta"] = parameters["rope_theta"] = rope.theta;
  if (rope.rotary_share != 1)
    config["partial_rotary_factor"] = parameters["partial_rotary_factor"] = rope.rotary_share;
  if (rope.type == "longrope") {
    config["original_max_position_embeddings"] = rope.original_positions;
    parameters["original_max_position_embeddings"] = rope.original_positions;
  }
  if (decoder.local_rope) {
    if (decoder.family == "gemma3_text") config["rope_local_base_freq"] = decoder.local_rope->theta;
    const Json local = {{"rope_type", "default"}, {"rope_theta", decoder.local_rope->theta}};
    parameters = {{"full_attention", parameters}, {"sliding_attention", local}};
  }
  config["rope_scaling"] = scaling;
  config["rope_parameters"] = parameters;
}

}  // namespace

nlohmann::ordered_json with_both_versions(nlohmann::ordered_json config, const DecoderConfig& decoder) {
  if (!decoder.learned_positions) add_ropes(config, decoder);
  if (decoder.experts.count > 0) config["num_local_experts"] = decoder.experts.count;
  if (decoder.family == "qwen3_moe") config["num_experts"] = decoder.experts.count;
  const Json dtype = config.contains("dtype") ? config.at("dtype") : config.value("torch_dtype", Json());
  config.erase("quantization_config");  // Written weights are dequantized.
  if (!dtype.is_null()) config["dtype"] = config["torch_dtype"] = dtype;
  return config;
}

}  // namespace hearth::models
