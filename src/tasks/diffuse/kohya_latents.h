#pragma once

#include <string>
#include <vector>

#include "data/captions/latents.h"
#include "io/npz.h"
#include "tasks/diffuse/cached_latents.h"

namespace hearth::tasks {

/// Latents and text embeddings for FLUX.1 that kohya's sd-scripts cached (--cache_latents_to_disk and
/// --cache_text_encoder_outputs_to_disk) in a folder and its subfolders: NAME_WWWWxHHHH_flux.npz with
/// "latents_HxW" f32 [16, H, W], already shifted and scaled, and NAME_flux_te.npz with t5_out [tokens, 4096]
/// and l_pooled [768]. The original images and captions are not needed. Images in a folder named NUM_NAME are
/// repeated NUM times per epoch. Files are read on access.
class KohyaLatents : public data::LatentSource {
 public:
  /// Lists the images of a folder. If an image has latents of several sizes, uses the largest of at most
  /// resolution x resolution pixels. Throws a UserError if there are no images, an image lacks one of its
  /// files, shapes do not match the model, or the embeddings were computed with an attention mask, which
  /// FLUX.1 does not use when it generates images.
  KohyaLatents(const fs::path& folder, int64_t resolution, const LatentFormat& format);

  int64_t size() const override { return std::ssize(image_of_index_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override { return image(index).latents_size; }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && &image(index) == &image(index - 1); }
  /// Reads the text embeddings of an image. Throws a UserError for the empty text (index -1), which these
  /// caches lack.
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;

 private:
  /// Cache files of an image.
  struct Image {
    fs::path latents, text;
    std::string array;  ///< name of the array in the file `latents`
    Extent latents_size;
  };
  const Image& image(int64_t index) const { return images_[image_of_index_.at(static_cast<size_t>(index))]; }
  void choose(Image& image, int64_t resolution) const;
  void check_text(const fs::path& path) const;

  fs::path folder_;
  std::vector<Image> images_;
  std::vector<size_t> image_of_index_;  ///< for each index of the source, the index in images_
  LatentFormat format_;
};

}  // namespace hearth::tasks
