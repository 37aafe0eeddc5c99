#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/path.h"
#include "data/boxes/box.h"

namespace hearth::data {

/// Reads the labels of a split (data/split_names.h), without decoding images.
/// - coco: a JSON file; or a folder with JSON files, directly, in annotations/ or in train/ and valid/.
/// - voc: a folder with XML files in Annotations/, in the folder of the images, or in train/ and valid/; the
///   lists ImageSets/Main/*.txt define the splits. Coordinates in the files count pixels from 1, inclusively.
/// - yolo: a data.yaml or its folder; label files are at the image's path with images/ replaced by labels/.
///   Or a folder with a classes.txt, directly or in labels/; then label files may also be in the folder of
///   the images.
/// - label_studio (JSON), cvat (XML for images 1.1), labelme (a JSON file per image), csv (filename, class,
///   xmin, ymin, xmax, ymax), createml: a file, or folders as for coco.
/// - detect: the only one of these formats that the path contains; UserError if it contains several.
/// In data without splits, every fifth image is held out for tests. exif_of() determines the orientation of
/// each image. Throws a UserError with file and line (JSON: object and byte) if labels are invalid; with
/// options.skip_bad, stores the error in BoxedImage::fault instead, and remove_unreadable() removes the
/// image.
BoxedImages read_boxes(const fs::path& path, std::string_view split, const LabelOptions& options = {});

/// True if a folder or file has labels in a format of BoxFormat.
bool has_boxes(const fs::path& path);

/// Statistics of the labels, and errors found by decoding every image once.
struct BoxCheck {
  struct Class {
    int64_t boxes = 0, images = 0;
    /// Number of boxes by area: below 32 x 32 pixels, below 96 x 96 pixels, larger.
    int64_t small = 0, medium = 0, large = 0;
    int64_t crowd = 0, difficult = 0;
  };
  std::vector<Class> classes;
  int64_t images_without_boxes = 0;
  /// Number of images whose EXIF orientation is not upright: rotated when decoded, and kept as stored (see
  /// exif_of).
  int64_t rotated_upright = 0, kept_as_stored = 0;
  std::vector<std::string> faults;  ///< "FILE: reason"
};
/// Decodes every image and counts the labels.
BoxCheck check_boxes(const BoxedImages& set);
/// Decodes every image on `num_threads` threads, and removes images that have a fault, cannot be decoded or
/// do not match their labels. Inserts a note with the number of removed images and the names of the first
/// ones at the front of set.notes. Throws a UserError if no image remains.
void remove_unreadable(BoxedImages& set, int num_threads);

}  // namespace hearth::data
