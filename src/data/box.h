#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/path.h"
#include "data/image.h"
#include "data/outline.h"

namespace hearth::data {

/// An object in an image: corners in pixels of the image that exif_of says, half-open, (0, 0) at the top
/// left.
struct Box {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  int32_t label = 0;       ///< into BoxedPictures::class_names
  bool crowd = false;      ///< COCO's iscrowd: stands for many objects, is never trained on
  bool difficult = false;  ///< VOC's
  double area = 0;         ///< COCO's area of the object's outline; elsewhere that of the box
};

struct BoxedPicture {
  fs::path file;
  int64_t width = 0, height = 0;  ///< as the labels say, or else of the image upright or as stored (`exif`)
  int64_t id = 0;                 ///< COCO's; elsewhere the place in the set, from 1
  std::vector<Box> boxes = {};    ///< inside the picture, none without area
  /// Outlines of the boxes, in their order; none unless LabelOptions::keep_outlines. An empty one is the box
  /// itself.
  std::vector<Outline> outlines = {};
};

/// Pictures with boxes, in the order of their names.
struct BoxedPictures {
  std::vector<std::string> class_names;
  std::vector<int64_t> category_ids;  ///< of each class: COCO's; from 0 for YOLO, from 1 for VOC
  std::vector<BoxedPicture> pictures;
  /// What was left out or changed, as "FILE:LINE: what".
  std::vector<std::string> notes;
  Exif exif = Exif::apply;
  /// Makes picture number `index`, RGB, where they are generated and no files; else null.
  std::function<Image(int64_t index)> draw = nullptr;
};

enum class BoxFormat { detect, coco, voc, yolo, label_studio, cvat, labelme, csv, createml };

struct LabelOptions {
  BoxFormat format = BoxFormat::detect;
  /// Images that labels name outside of the data's folder are read; else they are refused.
  bool allow_outside = false;
  bool keep_outlines = false;  ///< polygons and bitmaps of objects, for masks
  Exif exif = Exif::apply;
  /// Classes of the model, 0 if the data decides: COCO's categories without annotations are left out unless
  /// the model has a class for each category.
  int64_t num_classes = 0;
  /// Classes of the model by name, if known: categories of these names stay.
  std::vector<std::string> class_names = {};
};

/// Whether an image is turned upright so that it has the size that its labels say, of which both may be: as
/// stored where only that fits or `wanted` is ignore. UserError "NAME: ..." where neither fits.
Exif exif_of(const BoxedPicture& picture, const ImageHeader& header, Exif wanted);

}  // namespace hearth::data
