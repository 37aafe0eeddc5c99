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
/// The columns of settings, f32 [N, 3].
struct DenoiseSettings {
  float time = 0, weight = 0, guidance = 1;
};

/// What rows of one denoiser hold.
struct DenoiseFormat {
  models::DenoiserConfig model;
  int64_t text_tokens = 0;

  bool has_labels() const { return model.num_classes > 0; }
  int64_t text_size() const { return has_labels() ? 0 : text_tokens * model.text_width; }
  int64_t pooled_size() const { return has_labels() ? 0 : model.pooled_width; }
  /// Returns the formats of a row's arrays for latents of this size.
  data::ArrayFormats arrays(Extent latents) const;
};

/// A size of latents as a row length, and back.
int64_t length_of(Extent latents);
Extent extent_of(int64_t length);

/// Noised pictures as rows: tokens f32 [T, features], what to predict of them, settings, and a condition.
/// Every random choice is Philox's of the row's key and its index.
class DenoiseRows : public data::RowSource {
 public:
  /// `dropout`: the share of rows without condition. The sources outlive it.
  DenoiseRows(const data::LatentSource& pictures, DenoiseFormat format, const Noising& noising,
              double dropout);
  /// Of each picture a row at each level, with the same noise whenever it is read.
  DenoiseRows(const data::LatentSource& pictures, DenoiseFormat format, const Noising& noising,
              std::vector<double> levels, int64_t num_pictures);

  int64_t num_rows() const override;
  data::ArrayFormats formats(int64_t length) const override;
  int64_t scratch_bytes() const override;
  void make(const data::Row& row, const std::array<std::byte*, data::kMaxArrays>& arrays) const override;

 private:
  const data::LatentSource& pictures_;
  DenoiseFormat format_;
  const Noising& noising_;
  double dropout_ = 0;
  std::vector<double> levels_;  ///< empty: drawn
  int64_t num_pictures_;
  Extent largest_;
};

}  // namespace hearth::tasks
