#pragma once

#include <memory>
#include <optional>
#include <string>

#include "encoders/model_part.h"
#include "tasks/diffuse/diffusion_data.h"

namespace hearth::tasks {

/// Options of text_codec(): text encoders and autoencoder in diffusers' layout.
struct TextCodecOptions {
  fs::path model;                                               ///< folder with text encoders and tokenizers
  fs::path autoencoder;                                         ///< folder of the autoencoder
  std::optional<models::AutoencoderConfig> autoencoder_config;  ///< nullopt: read from the folder
  int64_t text_tokens = 512;
  encoders::Compute compute;
  int64_t memory = 0;  ///< memory budget of the decoder in bytes; 0: no limit
};
/// Returns a codec for text-to-image models, which loads encoders and decoder on first use. On first use, it
/// throws a UserError if the folder lacks them.
std::unique_ptr<DiffusionCodec> text_codec(const TextCodecOptions& options);

struct CaptionedImagesOptions {
  recipe::Data data;  ///< the last val_share of the images is held out
  recipe::Diffuse diffuse;
  fs::path cache;  ///< cache folder of latents and embeddings
  DenoiseFormat format;
  TextCodecOptions encoders;
  encoders::Compute preparation;  ///< device for prepare(); all other encoding uses encoders.compute
};
/// Opens image-caption pairs, which prepare() encodes and stores in the cache, and a codec with the same
/// encoders. Throws a UserError if data, encoders and model do not match.
std::unique_ptr<DiffusionData> captioned_images(const CaptionedImagesOptions& options);
/// Opens latents and embeddings that kohya's sd-scripts cached in options.data.path. Encoders are only needed
/// to generate images.
std::unique_ptr<DiffusionData> kohya_images(const CaptionedImagesOptions& options);

}  // namespace hearth::tasks
