#pragma once

#include <vector>

#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// An autoencoder of pictures, as a config.json of diffusers describes it: AutoencoderKL (Rombach et al.
/// 2022, arXiv 2112.10752) or AutoencoderKLFlux2.
struct AutoencoderConfig {
  std::vector<int64_t> widths;          ///< channels of the encoder's levels, the largest picture first
  std::vector<int64_t> decoder_widths;  ///< of the decoder's, in the same order
  int64_t layers = 1;                   ///< blocks in each level of the encoder; the decoder has one more
  int64_t channels = 4;                 ///< of the latents
  int64_t groups = 32;                  ///< of every group norm
  bool attention = true;                ///< in the middle of encoder and decoder
  bool quant_conv = true;               ///< a convolution of one tap after the encoder
  bool post_quant_conv = true;          ///< and one before the decoder
  /// Latents as they are noised are (mean - shift) * scale.
  double shift = 0;
  double scale = 1;
  /// Or, by statistics "bn.running_mean" and "bn.running_var" of patches of 2 x 2 latents,
  /// (mean - running mean) / sqrt(running variance + statistics_eps).
  bool has_statistics = false;
  double statistics_eps = 0;

  /// Pixels per latent along each axis.
  int64_t factor() const { return int64_t{1} << (widths.size() - 1); }
  /// What sides of pictures have to be multiples of.
  int64_t side_multiple() const { return (has_statistics ? 2 : 1) * factor(); }
};

/// Reads a config; `where` names it in messages. UserError for another class, a missing or absurd value.
AutoencoderConfig parse_autoencoder_config(std::string_view json, const std::string& where);
AutoencoderConfig read_autoencoder_config(const fs::path& file);

/// Grows the encoder under diffusers' names ("encoder.down_blocks.0.resnets.0.norm1.weight"): pictures
/// [N, H, W, 3] in [-1, 1], sides a multiple of the factor, to [N, H / factor, W / factor, 2 * channels], the
/// means of the latents and then the logarithms of their variances.
ir::ValueId build_picture_encoder(nn::Builder& builder, const AutoencoderConfig& config,
                                  ir::ValueId pictures);
/// Grows the decoder: latents [N, h, w, channels], neither shifted nor scaled, to pictures
/// [N, factor * h, factor * w, 3].
ir::ValueId build_picture_decoder(nn::Builder& builder, const AutoencoderConfig& config, ir::ValueId latents);

}  // namespace hearth::models
