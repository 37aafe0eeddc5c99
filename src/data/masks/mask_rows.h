#pragma once

#include "data/loader.h"
#include "data/masks/masks.h"

namespace hearth::data {

/// Options for converting an image and its mask to a row.
struct MaskRowOptions {
  Extent size;          ///< image size of a row
  bool resizes = true;  ///< True if images are resized to `size` first; otherwise their size is kept
  /// Range of the random factor by which both sides are scaled in training, before a random crop of `size` is
  /// taken. Pixels of the crop outside of the image are unlabeled.
  double min_scale = 1, max_scale = 1;
  PixelOptions pixels;               ///< normalization and augmentation of the image; crop_padding is ignored
  std::vector<float> class_weights;  ///< weight of each class in the loss; empty: all 1
};

/// Position of a crop in an image that was scaled to `scaled`: (top, left) is the upper left corner of the
/// crop, in pixels of the scaled image; it may be outside of the image. `flip`: the crop is mirrored
/// afterwards.
struct MaskPlacement {
  Extent scaled;
  int64_t top = 0, left = 0;
  bool flip = false;
};

/// Masked images as rows of three arrays: images f32 [height, width, 3], normalized and augmented; masks i32
/// [height, width], -1 where unlabeled; and the sum of the class weights of a row's pixels, f32.
class MaskRows : public RowSource {
 public:
  /// Throws a UserError if the options are invalid. The images must outlive this object.
  MaskRows(const MaskedImages& images, MaskRowOptions options);

  int64_t num_rows() const override { return images_.size(); }
  ArrayFormats formats(int64_t length) const override;
  void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const override;

 private:
  MaskPlacement place(const Row& row, Extent stored) const;

  const MaskedImages& images_;
  /// A copy of the options with pixels.augment.flip disabled, because place() decides about mirroring.
  MaskRowOptions options_;
  bool flips_;
};

/// Copies the crop at `placement` of a scaled RGB image to `out`. Pixels outside of the image get the mean,
/// which is normalized to about 0.
void place_image(const Image& scaled, const MaskPlacement& placement, Extent size,
                 const std::vector<float>& mean, uint8_t* out);
/// Copies the crop at `placement` of a mask to `out`, scaled by nearest-neighbor interpolation; kUnlabeled
/// outside of the image.
void place_mask(const Image& stored, const MaskPlacement& placement, Extent size, uint8_t* out);

/// Resizes a mask by nearest-neighbor interpolation.
Image resize_mask(const Image& mask, Extent size);
/// Converts mask labels to i32 class indices, -1 where unlabeled. Returns the sum of the pixels' class
/// weights (1 per pixel if `class_weights` is empty).
float number_mask(const std::vector<uint8_t>& labels, const std::vector<float>& class_weights,
                  int32_t* numbers);

}  // namespace hearth::data
