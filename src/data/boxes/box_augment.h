#pragma once

#include <cstdint>
#include <vector>

#include "data/boxes/box.h"
#include "data/picture_reader.h"

namespace hearth::data {

/// Random changes to pictures with boxes, as in YOLOX (Ge et al., 2021). Each choice is Philox of (key,
/// sample).
struct BoxAugment {
  double mosaic = 1;  ///< probability of four pictures around a random corner, turned and scaled
  double mixup = 1;   ///< probability that a mosaic is averaged with one more picture
  double degrees = 10;
  double translate = 0.1;  ///< of the sample's sides
  double shear = 2;        ///< degrees
  double scale_least = 0.1, scale_most = 2;
  double mixup_scale_least = 0.5, mixup_scale_most = 1.5;
  double flip = 0.5;                         ///< probability
  double hsv = 1;                            ///< probability
  int hue = 5, saturation = 30, value = 30;  ///< shifts up to these, in 8 bits (hue: of 180)
};

/// UserError where a number is out of its range.
void check_box_augment(const BoxAugment& augment);

/// An RGB picture and its boxes in its pixels.
struct BoxSample {
  Image image;
  std::vector<Box> boxes;
};

/// Where a picture lies in a sample: point (x, y) at (x scale_x + pad_x, y scale_y + pad_y).
struct Letterbox {
  double scale_x = 1, scale_y = 1;
  int64_t pad_x = 0, pad_y = 0;

  /// A box of the sample in pixels of the picture, whose area is that of the box; not clipped.
  Box undo(const Box& box) const;
};

/// Where a picture scaled to fit a frame lies in it: at the top left.
Letterbox letterbox_of(Extent picture, Extent frame);

/// Sample `index` of the set for training, `height` x `width`. The picture is number `index` of the set; a
/// mosaic's others and mixup's are drawn. Boxes follow; dropped are those of which a seam or the border
/// leaves less than a tenth, or a side of at most a pixel. The same on any thread and whatever the reader has
/// kept.
BoxSample make_train_sample(const BoxedPictures& set, const PictureReader& reader, const BoxAugment& augment,
                            int64_t height, int64_t width, uint64_t key, int64_t index);

/// Number `index` scaled to fit, at the top left, gray around it; all of its boxes.
struct EvalSample : BoxSample {
  Letterbox letterbox;
};
EvalSample make_eval_sample(const BoxedPictures& set, const PictureReader& reader, int64_t height,
                            int64_t width, int64_t index);

/// The same for a picture without labels.
EvalSample letterbox(const Image& image, int64_t height, int64_t width);

}  // namespace hearth::data
