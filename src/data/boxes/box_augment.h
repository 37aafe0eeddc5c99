#pragma once

#include <cstdint>
#include <vector>

#include "data/boxes/box.h"
#include "data/image_reader.h"

namespace hearth::data {

/// Random augmentation of images with boxes, as in YOLOX (Ge et al., 2021, arXiv 2107.08430). Random numbers
/// are Philox of (key, sample).
struct BoxAugment {
  /// Probability of a mosaic: four images around a random center, followed by an affine transformation.
  double mosaic = 1;
  double mixup = 1;        ///< probability of averaging a mosaic with one more image
  double degrees = 10;     ///< maximum rotation in degrees
  double translate = 0.1;  ///< maximum shift, as a fraction of the sample's sides
  double shear = 2;        ///< maximum shear angle in degrees
  double scale_min = 0.1, scale_max = 2;
  double mixup_scale_min = 0.5, mixup_scale_max = 1.5;
  double flip = 0.5;                         ///< probability of mirroring
  double hsv = 1;                            ///< probability of shifting hue, saturation and value
  int hue = 5, saturation = 30, value = 30;  ///< maximum shifts in 8-bit HSV (hue in units of 2 degrees)
};

/// Throws a UserError if a value is out of range.
void check_box_augment(const BoxAugment& augment);

/// An RGB image and its boxes, in pixels of that image.
struct BoxSample {
  Image image;
  std::vector<Box> boxes;
};

/// Position of a scaled image in a sample: image point (x, y) is at sample point (x scale_x + pad_x, y
/// scale_y + pad_y).
struct Letterbox {
  double scale_x = 1, scale_y = 1;
  int64_t pad_x = 0, pad_y = 0;

  /// Converts a box from sample pixels to image pixels, without clipping; sets its area to that of
  /// the converted box.
  Box undo(const Box& box) const;
};

/// Returns the letterbox of an image that is scaled to fit into `frame` and placed at its top left.
Letterbox letterbox_of(Extent image, Extent frame);

/// Returns training sample `index`, of `height` x `width` pixels: image `index` of the set, alone or with
/// randomly drawn images in a mosaic or mixup. Boxes are dropped if less than a tenth of their area or at
/// most one pixel of a side stays visible. Deterministic: does not depend on the thread or on the reader's
/// cache.
BoxSample make_train_sample(const BoxedImages& set, const ImageReader& reader, const BoxAugment& augment,
                            int64_t height, int64_t width, uint64_t key, int64_t index);

/// An image scaled to fit into a gray frame and placed at its top left, with all of its boxes.
struct EvalSample : BoxSample {
  Letterbox letterbox;
};
/// Returns image `index` of the set for evaluation.
EvalSample make_eval_sample(const BoxedImages& set, const ImageReader& reader, int64_t height, int64_t width,
                            int64_t index);

/// Places an image at the top left of a frame of `height` x `width` pixels for evaluation; the sample has no
/// boxes.
EvalSample letterbox(const Image& image, int64_t height, int64_t width);

}  // namespace hearth::data
