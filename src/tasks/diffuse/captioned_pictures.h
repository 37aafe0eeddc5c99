#pragma once

#include <memory>
#include <string>

#include "encoders/model_part.h"
#include "tasks/diffuse/picture_set.h"

namespace hearth::tasks {

/// Where prompts are read and pictures made by the encoders of a folder of diffusers.
struct TextTranslatorOptions {
  fs::path model;        ///< with text encoders and tokenizers
  fs::path autoencoder;  ///< its folder
  int64_t text_tokens = 512;
  encoders::Compute compute;
  int64_t memory = 0;  ///< budget of the decoder, bytes; 0: none
};
/// Encoders are opened when they are needed first. UserError for a folder that has none.
std::unique_ptr<PictureTranslator> text_translator(const TextTranslatorOptions& options);

struct CaptionedPicturesOptions {
  fs::path folder;  ///< of pictures with captions
  fs::path prior;   ///< more, of the class (JoinedLatents); empty: none
  double prior_weight = 1;
  double val_share = 0.1;  ///< held out: the last pictures
  int64_t resolution = 1024;
  std::string trigger;  ///< put before captions
  Exif exif = Exif::apply;
  bool allow_outside = false;  ///< images may be links out of the folder
  bool skip_bad = false;       ///< leave out pictures that cannot be read
  fs::path cache;              ///< folder of latents and embeddings
  DenoiseFormat format;
  TextTranslatorOptions encoders;
  encoders::Compute preparation;  ///< device for prepare(); all other encoding uses encoders.compute
};
/// Pictures with captions, which prepare() has encoded into the cache, and prompts with them. UserError where
/// data, encoders and model do not go together.
std::unique_ptr<PictureSet> captioned_pictures(const CaptionedPicturesOptions& options);
/// Of caches by kohya's sd-scripts in options.folder; no encoder is needed but to make pictures.
std::unique_ptr<PictureSet> kohya_pictures(const CaptionedPicturesOptions& options);

}  // namespace hearth::tasks
