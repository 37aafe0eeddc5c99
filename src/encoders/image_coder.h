#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"
#include "encoders/model_part.h"
#include "models/autoencoder/autoencoder.h"

namespace hearth::encoders {

/// Encodes images to the latents of a denoiser and decodes latents to images in f32, with the autoencoder of
/// a folder in diffusers' layout. Keeps two programs with their weights in memory: one for the last encoded
/// image size, one for the last decoded latent size.
class ImageCoder {
 public:
  /// `config`: of the folder's config.json; nullopt: read here. `memory_budget`: max. bytes for decoding; 0:
  /// no limit. Throws a UserError if a file or tensor is missing or invalid.
  ImageCoder(const fs::path& vae_folder, const std::optional<models::AutoencoderConfig>& config,
             Compute compute, int64_t memory_budget);

  int64_t channels() const { return config_.channels; }
  /// Pixels per latent along each axis.
  int64_t factor() const { return config_.factor(); }
  /// Throws a UserError if latents have a different number of channels than the denoiser expects.
  void expect_channels(int64_t channels) const;
  /// Returns latents [channels, height / factor, width / factor]: the means of the predicted distribution,
  /// normalized. Runs on the CPU if the image does not fit on the GPU. Throws a UserError if a side is not a
  /// multiple of the required factor.
  std::vector<float> encode(const data::Image& image);
  /// Returns the RGB image of latents of `size`. If the full image exceeds the memory budget, decodes
  /// overlapping tiles and blends them linearly. Throws a UserError if not even the smallest tiles fit.
  data::Image decode(std::span<const float> latents, Extent size);
  /// Returns a hash of the weights (io::fingerprint) and of the latents' normalization.
  uint64_t hash() const;
  /// Returns the size of the tiles in which latents of this size are decoded, in latents.
  Extent tile_of(Extent latents);

 private:
  /// Normalization of a latent: (mean - shift) * scale.
  struct Normalization {
    float shift = 0;
    float scale = 1;
  };
  struct SizedPart {
    Extent size;
    ModelPart part;
  };
  struct TileStart {
    int64_t y = 0;
    int64_t x = 0;
  };
  void read_statistics();
  const Normalization& normalization(int64_t channel, int64_t y, int64_t x) const {
    return normalizations_[static_cast<size_t>(4 * channel + 2 * (y % 2) + x % 2)];
  }
  ModelPart::Graph grow_encoder(nn::Builder& builder, Extent size) const;
  ModelPart::Graph grow_decoder(nn::Builder& builder, Extent size) const;
  ModelPart& encoder(Extent pixels);
  void open_decoder(Extent latents);
  std::optional<ModelPart> decoder_within_budget(Extent tile) const;
  /// Copies the denormalized latents of a tile to `in`, channels last, as the decoder expects them.
  void read_tile(std::span<const float> latents, Extent size, TileStart start, Extent tile,
                 std::vector<float>& in) const;

  models::AutoencoderConfig config_;
  io::WeightFiles files_;
  Compute compute_;
  int64_t budget_;
  std::vector<Normalization>
      normalizations_;  ///< [channels, 2, 2]: index by channel, then by row and column modulo 2
  std::optional<SizedPart> encoder_, decoder_;
  Extent decoded_;  ///< size of the latents for which the decoder's tile was chosen
};

}  // namespace hearth::encoders
