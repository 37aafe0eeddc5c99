#pragma once

#include <vector>

#include "data/captions/latents.h"
#include "data/loader.h"
#include "models/denoiser/denoiser.h"
#include "tasks/diffuse/noising.h"

namespace hearth::tasks {

/// Positions of the arrays of a row; a class-conditional model has a label instead of text.
struct DenoiseArray {
  enum : size_t { tokens, target, settings, label, text = label, pooled };
};
/// Columns of the settings array, f32 [N, 3]: timestep (0 to 1000), weight of the loss, guidance.
struct DenoiseSettings {
  float time = 0, weight = 0, guidance = 1;
};

/// Format of the rows of a denoiser.
struct DenoiseFormat {
  models::DenoiserConfig model;
  int64_t text_tokens = 0;

  bool has_labels() const { return model.num_classes > 0; }
  /// Number of floats of a row's text embeddings and of its pooled vector.
  int64_t text_size() const { return has_labels() ? 0 : text_tokens * model.text_width; }
  int64_t pooled_size() const { return has_labels() ? 0 : model.pooled_width; }
  /// Returns the formats of a row's arrays for latents of this size.
  data::ArrayFormats arrays(Extent latents) const;
};

/// Packs a size of latents into a row length (BatchShape::row_length), and unpacks it.
int64_t length_of(Extent latents);
Extent extent_of(int64_t length);

/// Row source of a denoiser: noised latents as tokens f32 [T, features], the prediction target, settings and
/// the condition. All random choices are Philox numbers of the row's key and its index.
class DenoiseRows : public data::RowSource {
 public:
  /// Training rows, at random noise levels. `dropout`: share of rows without condition (classifier-free
  /// guidance). The sources must outlive the rows.
  DenoiseRows(const data::LatentSource& images, DenoiseFormat format, const Noising& noising, double dropout);
  /// Evaluation rows: one for each of the first `num_images` images and each level, with noise that never
  /// changes.
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
  std::vector<double> levels_;  ///< empty: random levels
  int64_t num_images_;
  Extent largest_;
};

}  // namespace hearth::tasks
