#pragma once

#include <string>
#include <vector>

#include "data/captions/latents.h"
#include "io/npz.h"
#include "tasks/diffuse/cached_latents.h"

namespace hearth::tasks {

/// Caches that kohya's sd-scripts made for FLUX.1 (--cache_latents_to_disk and
/// --cache_text_encoder_outputs_to_disk), in a folder and those below it: NAME_WWWWxHHHH_flux.npz with
/// "latents_HxW" f32 [16, H, W], shifted and scaled already, and NAME_flux_te.npz with t5_out [tokens, 4096]
/// and l_pooled [768]. Images and captions themselves are not needed. In folders called NUM_NAME they come
/// NUM times. Files are read when they are asked for.
class KohyaLatents : public data::LatentSource {
 public:
  /// Takes, of an image's latents of several sizes, the largest of at most resolution x resolution pixels.
  /// UserError if there are none, an image lacks one of its files, sizes differ from the model's, or the
  /// embeddings were computed with an attention mask, which FLUX.1 does not use when it generates images.
  KohyaLatents(const fs::path& folder, int64_t resolution, const LatentFormat& format);

  int64_t size() const override { return std::ssize(image_of_index_); }
  int64_t channels() const override { return format_.channels; }
  Extent extent(int64_t index) const override { return image(index).latents_size; }
  void read(int64_t index, uint64_t key, std::span<float> latents) const override;
  bool is_repeat(int64_t index) const override { return index > 0 && &image(index) == &image(index - 1); }
  /// UserError for the empty text (index -1), which these caches lack.
  void text(int64_t index, std::span<float> text, std::span<float> pooled) const override;

 private:
  /// Files of an image.
  struct Image {
    fs::path latents, text;
    std::string array;  ///< name of the array in `latents`
    Extent latents_size;
  };
  const Image& image(int64_t index) const { return images_[image_of_index_.at(static_cast<size_t>(index))]; }
  void choose(Image& image, int64_t resolution) const;
  void check_text(const fs::path& path) const;

  fs::path folder_;
  std::vector<Image> images_;
  std::vector<size_t> image_of_index_;  ///< by index: position in images_
  LatentFormat format_;
};

}  // namespace hearth::tasks
