#pragma once

#include <span>
#include <string>

#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// The text encoder of CLIP (Radford et al. 2021, arXiv 2103.00020), as described by config.json of
/// transformers.
struct ClipConfig {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_positions = 0;  ///< number of positions; every text is padded to this number of tokens
  double norm_eps = 1e-5;
  std::string activation = "quick_gelu";  ///< quick_gelu, gelu or gelu_tanh
  int64_t eos_id = 0;
};

/// Reads a config; `where` names it in messages. Throws a UserError for another model, or a missing or
/// invalid value.
ClipConfig parse_clip_config(std::string_view json, const std::string& where);
/// Reads a config.json; throws a UserError if it is missing.
ClipConfig read_clip_config(const fs::path& file);

/// Builds one layer, with transformers' tensor names relative to the layer ("self_attn.q_proj.weight"). `x`
/// and the result: [num_rows * num_positions, hidden].
ir::ValueId build_clip_layer(nn::Builder& builder, const ClipConfig& config, ir::ValueId x, int64_t num_rows);

/// Returns the index of the token whose last hidden state is the pooled embedding: as in transformers, the
/// first eos_id, or the largest id if eos_id is 2, a value that old configs have by mistake.
size_t clip_pooled_token(const ClipConfig& config, std::span<const int32_t> ids);

}  // namespace hearth::models
