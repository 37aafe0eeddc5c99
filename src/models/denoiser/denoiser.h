#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/extent.h"
#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// A network that predicts what noise did to latents, as a config.json of diffusers describes it.
struct DenoiserConfig {
  /// FLUX.1, FLUX.2, and DiT (Peebles and Xie 2022, arXiv 2212.09748).
  enum class Family : uint8_t { flux, flux2, dit };
  Family family = Family::flux;
  int64_t patch = 2;         ///< latents per side of a token
  int64_t channels = 0;      ///< of latents
  int64_t out_channels = 0;  ///< more than `channels`: those that follow are a learned variance
  int64_t heads = 0, head_size = 0;
  int64_t num_double = 0;  ///< blocks where text and picture have weights of their own; 0 in DiT
  int64_t num_single = 0;  ///< blocks where they have the same
  int64_t mlp = 0;         ///< width inside of a block's MLP
  int64_t text_width = 0, pooled_width = 0;
  bool guidance = false;        ///< the network is told the guidance scale
  std::vector<int64_t> axes;    ///< elements of a head that turn by each axis of positions
  double theta = 10000;         ///< base of the rotary positions
  double eps = 1e-6;            ///< of norms
  double mlp_eps = 1e-6;        ///< of DiT's norms before MLPs
  int64_t time_channels = 256;  ///< of the sinusoids that time becomes
  bool qkv_bias = true;
  int64_t side = 0;          ///< DiT: tokens per side of a picture, which is a square
  int64_t num_classes = 0;   ///< labels 0 .. num_classes - 1; label num_classes: no condition
  int64_t class_tokens = 0;  ///< FLUX with classes: how many text tokens a table has for each

  int64_t width() const { return heads * head_size; }
  int64_t features() const { return channels * patch * patch; }
  int64_t out_features() const { return out_channels * patch * patch; }
};

/// Reads a config of diffusers' FluxTransformer2DModel, Flux2Transformer2DModel or DiTTransformer2DModel.
/// Keys of ours for FLUX.1: "num_classes" with "class_tokens", and "latent_patch" (default 2). `where` names
/// it in messages. UserError for another class, a missing or absurd value.
DenoiserConfig parse_denoiser_config(std::string_view json, const std::string& where);
/// Returns the text of a config.json; UserError if the file does not exist.
std::string read_denoiser_json(const fs::path& config_json);
DenoiserConfig read_denoiser_config(const fs::path& config_json);

/// What a denoiser sees of a batch: B = num_rows samples of T = patches.num_pixels() tokens.
struct DenoiserInputs {
  ir::ValueId tokens = ir::kNone;  ///< f32 [B * T, features]
  ir::ValueId time = ir::kNone;    ///< f32 [B], 0 to 1000: what it is told of sigma
  ir::ValueId labels = ir::kNone;  ///< i32 [B]; none: there are no classes
  ir::ValueId text = ir::kNone;    ///< f32 [B * text_tokens, text_width]; none: FLUX has classes
  ir::ValueId pooled = ir::kNone;  ///< f32 [B, pooled_width] of FLUX.1
  int64_t num_rows = 1;
  Extent patches = 0;
  int64_t text_tokens = 0;
  ir::ValueId guidance = ir::kNone;  ///< f32 [B], the scale that a network with `guidance` is told
};

/// Grows a denoiser under diffusers' names ("transformer_blocks.0.attn.to_q.weight"): its prediction [B * T,
/// out_features]. New weights start as DiT's. UserError for patches that a DiT is not made for.
ir::ValueId build_denoiser(nn::Builder& builder, const DenoiserConfig& config, const DenoiserInputs& in);

}  // namespace hearth::models
