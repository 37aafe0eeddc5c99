#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// The encoder of T5 with gated GELU (Raffel et al. 2020, arXiv 1910.10683; version 1.1), as described by
/// config.json of transformers.
struct T5Config {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t head_size = 0;
  double norm_eps = 1e-6;
  int64_t num_buckets = 32;    ///< buckets of relative positions
  int64_t max_distance = 128;  ///< distances of at least max_distance share a bucket
  int64_t pad_id = 0;
};

/// Reads a config; `where` names it in messages. Throws a UserError for another model, or a missing or
/// invalid value.
T5Config parse_t5_config(std::string_view json, const std::string& where);
/// Reads a config.json; throws a UserError if it is missing.
T5Config read_t5_config(const fs::path& file);

/// Returns the relative position bias [heads, queries, keys] that is added to attention scores. `table`: bias
/// [num_buckets, heads]. Half of the buckets are for keys before the query, half for keys after it. In each
/// half, the first half of the buckets are for single distances, the others for ranges of distances that grow
/// logarithmically.
std::vector<float> t5_bias(const T5Config& config, std::span<const float> table, int64_t num_tokens);

/// Builds one layer, with transformers' tensor names relative to the block
/// ("layer.0.SelfAttention.q.weight"). `x` and the result: [num_rows * tokens, hidden]; `bias`: result of
/// t5_bias().
ir::ValueId build_t5_layer(nn::Builder& builder, const T5Config& config, ir::ValueId x, ir::ValueId bias,
                           int64_t num_rows);

}  // namespace hearth::models
