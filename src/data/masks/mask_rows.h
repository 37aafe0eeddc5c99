#pragma once

#include "data/loader.h"
#include "data/masks/masks.h"

namespace hearth::data {

/// How a picture and its mask become a row.
struct MaskRowOptions {
  Extent size;          ///< of a row's picture
  bool resizes = true;  ///< pictures are resized to `size` first; else they keep the size that they have
  /// Training: both sides are scaled by the same random factor from `least_scale` to `most_scale`, and a
  /// random part of `size` is cut out; what lies outside of the picture is unlabeled.
  double least_scale = 1, most_scale = 1;
  PixelOptions pixels;               ///< crop_padding is left out
  std::vector<float> class_weights;  ///< of each class; empty: 1
};

/// Where a row's picture lies in its source scaled to `scaled`: its upper left corner, which may be outside,
/// before it is mirrored.
struct MaskPlacement {
  Extent scaled;
  int64_t top = 0, left = 0;
  bool flip = false;
};

/// Masked images as rows of three arrays: images f32 [height, width, 3], normalized and augmented; masks i32
/// [height, width], -1 where unlabeled; and the sum of the class weights of a row's pixels, f32.
class MaskRows : public RowSource {
 public:
  /// UserError where the options do not fit. The images must outlive it.
  MaskRows(const MaskedImages& images, MaskRowOptions options);

  int64_t num_rows() const override { return images_.size(); }
  ArrayFormats formats(int64_t length) const override;
  void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const override;

 private:
  MaskPlacement place(const Row& row, Extent stored) const;

  const MaskedImages& images_;
  MaskRowOptions options_;  ///< its pixels are mirrored when they are placed, and no more after that
  bool flips_;
};

/// The pixels of an RGB picture, scaled already, that lie in a part of it; outside, the mean of all pictures,
/// which is normalized to about 0.
void place_image(const Image& scaled, const MaskPlacement& placement, Extent size,
                 const std::vector<float>& mean, uint8_t* out);
/// The nearest pixel of `stored` for each of a part of it scaled and placed; kUnlabeled outside.
void place_mask(const Image& stored, const MaskPlacement& placement, Extent size, uint8_t* out);

/// A mask in another size, by the nearest pixels.
Image resize_mask(const Image& mask, Extent size);
/// Labels as numbers, -1 where unlabeled; returns the sum of their weights (of each 1 if there are none).
float number_mask(const std::vector<uint8_t>& labels, const std::vector<float>& class_weights,
                  int32_t* numbers);

}  // namespace hearth::data
