#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "models/decoder/config.h"

namespace hearth::models {

using Json = nlohmann::ordered_json;

/// The config.json of a small model of the family, in the keys that most share.
inline Json small(const char* family) {
  return {{"model_type", family},          {"vocab_size", 100},      {"hidden_size", 64},
          {"intermediate_size", 96},       {"num_hidden_layers", 4}, {"num_attention_heads", 8},
          {"num_key_value_heads", 2},      {"rms_norm_eps", 1e-5},   {"hidden_act", "silu"},
          {"max_position_embeddings", 512}};
}

inline DecoderConfig parsed(const Json& json) { return parse_decoder_config(json.dump(), "config.json"); }

inline RopeTable table_of(const DecoderConfig& config) { return rope_table(config.rope, config.head_size); }

/// The sentence with which a config is refused.
inline std::string error_of(const Json& json) {
  try {
    parsed(json);
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace hearth::models
