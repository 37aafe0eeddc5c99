#pragma once

#include <span>
#include <string>

#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// The text half of CLIP (Radford et al. 2021, arXiv 2103.00020), as a config.json of transformers describes
/// it.
struct ClipConfig {
  int64_t vocab_size = 0;
  int64_t hidden = 0;
  int64_t intermediate = 0;
  int64_t num_layers = 0;
  int64_t num_heads = 0;
  int64_t num_positions = 0;  ///< tokens that every text is padded to
  double norm_eps = 1e-5;
  std::string activation = "quick_gelu";  ///< or gelu, gelu_tanh
  int64_t eos_id = 0;
};

/// Reads a config; `where` names it in messages. UserError for another model, a missing or absurd value.
ClipConfig parse_clip_config(std::string_view json, const std::string& where);
ClipConfig read_clip_config(const fs::path& file);

/// Grows one layer under transformers' names from "self_attn.q_proj.weight" on: x [num_rows * positions,
/// hidden] to the same.
ir::ValueId build_clip_layer(nn::Builder& builder, const ClipConfig& config, ir::ValueId x, int64_t num_rows);

/// Which token's last hidden state stands for the text: as in transformers, the first of the ids that is
/// eos_id, or the largest id where eos_id is 2, which old configs say wrongly.
size_t clip_pooled_token(const ClipConfig& config, std::span<const int32_t> ids);

}  // namespace hearth::models
