#pragma once

#include <vector>

#include "base/file.h"
#include "nn/module.h"

namespace hearth::models {

/// An image autoencoder, as described by config.json of diffusers: AutoencoderKL (Rombach et al. 2022, arXiv
/// 2112.10752) or AutoencoderKLFlux2.
struct AutoencoderConfig {
  /// Channels of each level (resolution) of the encoder, largest resolution first.
  std::vector<int64_t> widths;
  std::vector<int64_t> decoder_widths;  ///< channels of each level of the decoder, largest resolution first
  int64_t layers = 1;      ///< ResNet blocks per level of the encoder; the decoder has one more per level
  int64_t channels = 4;    ///< channels of the latents
  int64_t groups = 32;     ///< number of groups of every group norm
  bool attention = true;   ///< true if encoder and decoder have attention in the middle
  bool quant_conv = true;  ///< true if a 1x1 convolution follows the encoder
  bool post_quant_conv = true;  ///< true if a 1x1 convolution precedes the decoder
  /// If has_statistics is false, the diffusion model's latents are (mean - shift) * scale, where `mean` is
  /// the encoder's output.
  double shift = 0;
  double scale = 1;
  /// If true, the diffusion model's latents are (mean - running mean) / sqrt(running variance +
  /// statistics_eps), with the tensors "bn.running_mean" and "bn.running_var", which have a value for each
  /// channel and position in a patch of 2 x 2 latents.
  bool has_statistics = false;
  double statistics_eps = 0;

  /// Returns the image pixels per latent, along each axis.
  int64_t factor() const { return int64_t{1} << (widths.size() - 1); }
  /// Returns the number of pixels that image sides must be multiples of.
  int64_t side_multiple() const { return (has_statistics ? 2 : 1) * factor(); }
};

/// Reads a config; `where` names it in messages. Throws a UserError for another class, or a missing or
/// invalid value.
AutoencoderConfig parse_autoencoder_config(std::string_view json, const std::string& where);
/// Reads a config.json; throws a UserError if it is missing.
AutoencoderConfig read_autoencoder_config(const fs::path& file);

/// Builds the encoder with diffusers' tensor names ("encoder.down_blocks.0.resnets.0.norm1.weight").
/// `images`: [N, H, W, 3] in [-1, 1], with sides that are multiples of factor(). Returns [N, H / factor, W /
/// factor, 2 * channels]: the means of the latents, then the logarithms of their variances.
ir::ValueId build_image_encoder(nn::Builder& builder, const AutoencoderConfig& config, ir::ValueId images);
/// Builds the decoder. `latents`: [N, h, w, channels], without the diffusion model's shift and scale. Returns
/// images [N, factor * h, factor * w, 3] in [-1, 1].
ir::ValueId build_image_decoder(nn::Builder& builder, const AutoencoderConfig& config, ir::ValueId latents);

}  // namespace hearth::models
