#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/path.h"
#include "data/images/image.h"
#include "data/masks/outline.h"

namespace hearth::data {

/// An object in an image: its bounding box with half-open corners in pixels, (0, 0) at the top left. The
/// pixels are those of the upright image or of the stored one; exif_of() determines which.
struct Box {
  double x0 = 0, y0 = 0, x1 = 0, y1 = 0;
  int32_t label = 0;       ///< index into BoxedImages::class_names
  bool crowd = false;      ///< COCO's iscrowd: the box contains many objects and is not used for training
  bool difficult = false;  ///< VOC's flag for objects that are hard to recognize
  double area = 0;  ///< COCO: area of the object's outline; other formats: area of the box; in square pixels
};

/// An image with its labels.
struct BoxedImage {
  fs::path file;
  /// In pixels, from the labels; if they have none, from the image file (see BoxedImages::exif).
  int64_t width = 0, height = 0;
  int64_t id = 0;               ///< COCO's image id; other formats: number of the image in the set, from 1
  std::vector<Box> boxes = {};  ///< clipped to the image, without empty boxes
  /// Outline of each box, by index of `boxes`; empty unless LabelOptions::keep_outlines. An empty outline
  /// means that the object is the full box.
  std::vector<Outline> outlines = {};
  /// "FILE:LINE: reason" if the labels of the image are invalid and LabelOptions::skip_bad is set; otherwise
  /// empty. An image with a fault has no boxes; remove_unreadable() removes it.
  std::string fault = {};
};

/// Images with boxes, sorted by name.
struct BoxedImages {
  std::vector<std::string> class_names;
  std::vector<int64_t> category_ids;  ///< COCO's id of each class; counted from 0 for YOLO, from 1 for VOC
  std::vector<BoxedImage> images;
  /// Messages about labels that were skipped or changed, as "FILE:LINE: message".
  std::vector<std::string> notes;
  Exif exif = Exif::apply;
  /// Draws image `index` as RGB if images are generated; null if they are files.
  std::function<Image(int64_t index)> draw = nullptr;
};

/// Label formats.
enum class BoxFormat { detect, coco, voc, yolo, label_studio, cvat, labelme, csv, createml };

/// Options of read_boxes().
struct LabelOptions {
  BoxFormat format = BoxFormat::detect;
  /// True if images outside of the data's folder may be read; otherwise they are refused.
  bool allow_outside = false;
  bool keep_outlines = false;  ///< True if polygons and bitmaps of objects are kept, for masks
  Exif exif = Exif::apply;
  /// True if errors in an image's labels are stored in BoxedImage::fault instead of thrown.
  bool skip_bad = false;
  /// Number of classes of the model; 0: the number in the data. COCO categories without annotations are
  /// dropped, unless num_classes is at least the number of categories.
  int64_t num_classes = 0;
  /// Names of the model's classes, if known: COCO categories with these names are kept.
  std::vector<std::string> class_names = {};
};

/// Compares the size of an image in its labels with its stored size and its size after EXIF rotation. Returns
/// Exif::ignore if only the stored size matches or `wanted` is Exif::ignore, otherwise Exif::apply. Throws a
/// UserError "NAME: ..." if neither size matches.
Exif exif_of(const BoxedImage& image, const ImageHeader& header, Exif wanted);

}  // namespace hearth::data
