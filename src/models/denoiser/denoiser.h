#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// A network that predicts the noise or velocity of noisy latents, as described by config.json of diffusers.
struct DenoiserConfig {
  /// Network architecture: FLUX.1, FLUX.2, or DiT (Peebles and Xie 2022, arXiv 2212.09748).
  enum class Family : uint8_t { flux, flux2, dit };
  Family family = Family::flux;
  int64_t patch = 2;     ///< side of the patch of latents that forms a token
  int64_t channels = 0;  ///< channels of the latents
  /// Predicted channels; if more than `channels`, the others are a learned variance.
  int64_t out_channels = 0;
  int64_t heads = 0, head_size = 0;
  int64_t num_double = 0;  ///< double-stream blocks, with separate weights for text and image; 0 in DiT
  int64_t num_single = 0;  ///< single-stream blocks, with shared weights
  int64_t mlp = 0;         ///< hidden width of a block's MLP
  int64_t text_width = 0, pooled_width = 0;
  bool guidance = false;      ///< true if the guidance scale is an input (guidance distillation)
  std::vector<int64_t> axes;  ///< number of a head's elements that RoPE rotates by each axis of the position
  double theta = 10000;       ///< base of RoPE
  double eps = 1e-6;          ///< epsilon of norms
  double mlp_eps = 1e-6;      ///< epsilon of DiT's norms before MLPs
  int64_t time_channels = 256;  ///< width of the sinusoidal time embedding
  bool qkv_bias = true;
  int64_t side = 0;          ///< DiT: tokens per side of the square image
  int64_t num_classes = 0;   ///< number of classes; label num_classes means unconditional
  int64_t class_tokens = 0;  ///< for a class-conditional FLUX.1: number of learned text tokens per class

  int64_t width() const { return heads * head_size; }
  int64_t features() const { return channels * patch * patch; }
  int64_t out_features() const { return out_channels * patch * patch; }
};

/// Reads a config of diffusers' FluxTransformer2DModel, Flux2Transformer2DModel or DiTTransformer2DModel. For
/// FLUX.1, reads additional keys that diffusers does not have: "num_classes" and "class_tokens"
/// (class-conditional model), and "latent_patch" (default 2). `where` names the config in messages. Throws a
/// UserError for another class, or a missing or invalid value.
DenoiserConfig parse_denoiser_config(std::string_view json, const std::string& where);
/// Reads a config.json; throws a UserError if it is missing.
DenoiserConfig read_denoiser_config(const fs::path& config_json);
/// Returns the text of a config.json; throws a UserError if it is missing.
std::string read_denoiser_json(const fs::path& config_json);

/// Inputs of a denoiser: B = num_rows samples of T = patches.num_pixels() tokens.
struct DenoiserInputs {
  ir::ValueId tokens = ir::kNone;  ///< f32 [B * T, features]
  ir::ValueId time = ir::kNone;    ///< f32 [B]: timesteps from 0 to 1000 (1000 * sigma in flow matching)
  ir::ValueId labels = ir::kNone;  ///< i32 [B]; kNone: no classes
  ir::ValueId text = ir::kNone;    ///< f32 [B * text_tokens, text_width]; kNone: class-conditional model
  ir::ValueId pooled = ir::kNone;  ///< f32 [B, pooled_width], for FLUX.1
  int64_t num_rows = 1;
  Extent patches = 0;
  int64_t text_tokens = 0;
  ir::ValueId guidance = ir::kNone;  ///< f32 [B], guidance scale for networks with `guidance`
};

/// Builds a denoiser with diffusers' tensor names ("transformer_blocks.0.attn.to_q.weight"); returns its
/// prediction [B * T, out_features]. The weights of a new model are initialized as in the DiT paper. Throws a
/// UserError if a DiT, whose image size is fixed, gets another number of patches.
ir::ValueId build_denoiser(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);

}  // namespace hearth::models
