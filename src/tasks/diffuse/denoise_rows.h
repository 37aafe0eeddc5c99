#pragma once

#include <vector>

#include "data/captions/latents.h"
#include "data/loader.h"
#include "models/denoiser/denoiser.h"
#include "tasks/diffuse/noising.h"

namespace hearth::tasks {

/// Indices of the arrays of a row. The rows of a class-conditional model have a label instead of text and
/// pooled.
struct DenoiseArray {
  enum : size_t { tokens, target, settings, label, text = label, pooled };
};
/// A row of the settings array, f32 [N, 3]: timestep (0 to 1000), weight of the loss, guidance scale.
struct DenoiseSettings {
  float time = 0, weight = 0, guidance = 1;
};

/// Format of the rows of a denoiser.
struct DenoiseFormat {
  models::DenoiserConfig model;
  int64_t text_tokens = 0;

  bool has_labels() const { return model.num_classes > 0; }
  /// Return the number of floats of a row's text embeddings, and of its pooled vector.
  int64_t text_size() const { return has_labels() ? 0 : text_tokens * model.text_width; }
  int64_t pooled_size() const { return has_labels() ? 0 : model.pooled_width; }
  /// Returns the formats of a row's arrays for latents of this size.
  data::ArrayFormats arrays(Extent latents) const;
};

/// Encode a size of latents as a row length (BatchShape::row_length), and decode it.
int64_t length_of(Extent latents);
Extent extent_of(int64_t length);

/// Row source of a denoiser: noisy latents as tokens f32 [T, features], the prediction target, settings and
/// the condition. All random choices are Philox numbers of the row's key and index.
class DenoiseRows : public data::RowSource {
 public:
  /// Creates training rows, with random noise levels. `dropout`: fraction of rows whose condition is dropped,
  /// for classifier-free guidance. `images` and `noising` must outlive this object.
  DenoiseRows(const data::LatentSource& images, DenoiseFormat format, const Noising& noising, double dropout);
  /// Creates evaluation rows: one for each of the first `num_images` images and each noise level, always with
  /// the same noise.
  DenoiseRows(const data::LatentSource& images, DenoiseFormat format, const Noising& noising,
              std::vector<double> levels, int64_t num_images);

  int64_t num_rows() const override;
  data::ArrayFormats formats(int64_t length) const override;
  int64_t scratch_bytes() const override;
  void make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const override;

 private:
  const data::LatentSource& images_;
  DenoiseFormat format_;
  const Noising& noising_;
  double dropout_ = 0;
  std::vector<double> levels_;  ///< noise levels of evaluation rows; empty: training rows with random levels
  int64_t num_images_;
  Extent largest_;
};

}  // namespace hearth::tasks
