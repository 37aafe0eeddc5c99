#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/extent.h"
#include "data/images/image.h"
#include "encoders/model_part.h"
#include "models/autoencoder/autoencoder.h"

namespace hearth::encoders {

/// Turns pictures into the latents that a denoiser learns of, and latents into pictures, with the autoencoder
/// of a folder in diffusers' layout. In f32; the program and the weights for the last size of each way stay
/// in memory.
class PictureCoder {
 public:
  /// `memory_budget`: the most bytes that decoding may take at once; 0: there is no limit. UserError where
  /// something is missing or wrong.
  PictureCoder(const fs::path& vae_folder, Compute compute, int64_t memory_budget);

  int64_t channels() const { return config_.channels; }
  /// Pixels per latent along each axis.
  int64_t factor() const { return config_.factor(); }
  /// UserError where latents have other channels than the denoiser takes.
  void expect_channels(int64_t channels) const;
  /// [channels, height / factor, width / factor]: the means of the latents, shifted and scaled; on the
  /// processor where a GPU has no room for a picture of that size. UserError for other sides.
  std::vector<float> encode(const data::Image& picture);
  /// The picture of such latents, in RGB. Where the budget asks for it, of overlapping tiles, between which
  /// it passes over linearly; UserError where it has no room for the smallest ones.
  data::Image decode(std::span<const float> latents, Extent size);
  /// Of the weights (io::fingerprint), and of how latents are shifted and scaled.
  uint64_t hash() const;
  /// What of latents is decoded at once.
  Extent tile_of(Extent latents);

 private:
  /// How one latent is noised: (mean - shift) * scale.
  struct Normal {
    float shift = 0;
    float scale = 1;
  };
  struct Sized {
    Extent size;
    ModelPart part;
  };
  struct Place {
    int64_t y = 0;
    int64_t x = 0;
  };
  void read_statistics();
  const Normal& normal(int64_t channel, int64_t y, int64_t x) const {
    return normals_[static_cast<size_t>(4 * channel + 2 * (y % 2) + x % 2)];
  }
  ModelPart::Graph grow_encoder(nn::Builder& builder, Extent size) const;
  ModelPart::Graph grow_decoder(nn::Builder& builder, Extent size) const;
  ModelPart& encoder(Extent pixels);
  void open_decoder(Extent latents);
  std::optional<ModelPart> decoder_within_budget(Extent tile) const;
  /// The latents of a tile as the decoder takes them.
  void read_tile(std::span<const float> latents, Extent size, Place start, Extent tile,
                 std::vector<float>& in) const;

  models::AutoencoderConfig config_;
  io::WeightFiles files_;
  Compute compute_;
  int64_t budget_;
  std::vector<Normal> normals_;  ///< by channel, and row and column within 2 x 2 latents
  std::optional<Sized> encoder_, decoder_;
  Extent decoded_;  ///< the latents that the decoder's size was chosen for
};

}  // namespace hearth::encoders
