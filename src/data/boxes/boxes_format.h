#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/function_ref.h"
#include "data/boxes/box.h"

/// Functions shared by the label readers, and parsers of single files, which do not access other files.
namespace hearth::data {

/// Adds a box, clipped to the image, and its outline unless `outline` is null. Adds a note "WHERE: ..." if
/// the clipped box is empty or clipping moved an edge by more than a pixel. Throws a UserError if a corner of
/// the outline is more than 1e6 pixels away.
void add_box(Box box, std::string_view where, BoxedImage& image, std::vector<std::string>& notes,
             Outline* outline = nullptr);

/// Calls read(), which adds boxes to `image`. If `skip_bad` and read() throws a UserError, stores its message
/// in BoxedImage::fault, and removes the boxes of the image and the notes of read(). Does nothing if the
/// image already has a fault.
void read_or_keep_fault(BoxedImage& image, std::vector<std::string>& notes, bool skip_bad,
                        FunctionRef<void()> read);
/// Returns a note about invalid labels that are skipped (skip_bad) and whose image is unknown, so that no
/// BoxedImage::fault can contain the error.
std::string describe_skipped_labels(std::string_view fault);
/// Returns "; the first fault: FAULT", to be appended to the message that labels contain no objects; "" if
/// `fault` is empty.
std::string first_fault(std::string_view fault);

/// True if labels may contain this image width or height, in pixels; 0 means that the labels do not contain
/// it.
constexpr bool is_image_side(int64_t side) { return side >= 0 && side <= 1 << 20; }

/// Throws a UserError unless all corners are finite and within the maximum image size.
void check_corners(const Box& box, std::string_view where);

/// Splits a set without splits: every fifth image by name is for tests, the others are for training. Keeps
/// the images of `split` and adds a note.
void keep_split(std::string_view split, const fs::path& path, BoxedImages& set);

/// Sorts images by name and sets their ids to 1, 2, ...
void number_images(BoxedImages& set);

/// Reads width and height from the header of the image file, after applying `exif`.
void measure(BoxedImage& image, Exif exif);

/// Returns the files of a folder whose names end in `ending`, sorted, without hidden files.
std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view ending);

/// Parses a number, surrounded by optional whitespace; nullopt if it is not a number or not finite.
std::optional<double> parse_number(std::string_view text);

/// An object of a VOC file, with corners counted from 1 as in the file.
struct VocObject {
  std::string name;
  Box box;
  int64_t line = 0;
};
/// Contents of a VOC file.
struct VocFile {
  std::string image;              ///< <filename>; may be empty or wrong
  int64_t width = 0, height = 0;  ///< 0 if not given
  std::vector<VocObject> objects;
  std::string fault = {};  ///< with skip_bad: error that makes the file invalid; then `objects` is empty
};
/// Parses a VOC file.
VocFile parse_voc(std::string_view text, std::string_view name, bool skip_bad = false);

/// Contents of a COCO JSON file, with category ids replaced by class indices; `file` of each image is the
/// file_name in the labels. An annotation without a bbox gets the bounding box of its segmentation. String
/// ids are replaced by numbers in file order. With options.skip_bad, an image has a fault if its record or
/// one of its annotations is invalid.
struct CocoFile {
  BoxedImages labels;
  std::vector<bool> is_used;  ///< for each class: true if an annotation refers to it
};
CocoFile parse_coco(std::string_view text, std::string_view name, const LabelOptions& options = {});
/// Reads only the classes and, for each class, whether annotations refer to it.
CocoFile parse_coco_classes(std::string_view text, std::string_view name, const LabelOptions& options = {});

/// Format of YOLO label lines, and counts of lines with an outline or key points.
struct YoloLines {
  int64_t num_classes = 0;
  /// Number of key point values after each box: the product of kpt_shape in data.yaml.
  int64_t keypoint_numbers = 0;
  bool keep_outlines = false;
  /// Number of lines with an outline and with key points, so far.
  int64_t num_outlines = 0, num_keypoints = 0;
};
/// Parses a YOLO label file and adds its boxes to an image whose size is known.
void parse_yolo(std::string_view text, std::string_view name, YoloLines& lines, BoxedImage& image,
                std::vector<std::string>& notes);

/// Contents of a data.yaml, with paths unresolved.
struct YoloIndex {
  std::string root;
  std::vector<std::string> train,
      /// Held_out: paths under the key val, valid, ... or test (names of the test split in
      /// data/split_names.h).
      held_out;
  std::vector<std::string> class_names;
  /// Number of key point values per box, the product of kpt_shape; 0: no key points.
  int64_t keypoint_numbers = 0;
};
/// Parses a data.yaml.
YoloIndex parse_yolo_index(const std::string& text, const std::string& name);

/// Parses a classes.txt: a class name on each line, from class 0 on.
std::vector<std::string> parse_class_names(std::string_view text, std::string_view name);

/// An object in a label file of Label Studio, CVAT, LabelMe, CSV or CreateML.
struct LabeledObject {
  std::string name;
  Box box;
  Outline outline;  ///< empty: the object is the full box
  std::string where;
};
/// Sets an object's outline to a polygon of at least three corners, and its box to the bounding box.
void set_polygon(std::vector<double> polygon, LabeledObject& object);
/// An image in a label file of Label Studio, CVAT, LabelMe, CSV or CreateML.
struct LabeledImage {
  std::string file;               ///< path as written in the labels; empty if it cannot be read (see fault)
  int64_t width = 0, height = 0;  ///< 0 if not given
  std::string subset;             ///< name of the subset (split) in CVAT's labels, such as "Train"
  std::string where;
  std::vector<LabeledObject> objects;
  std::string fault = {};  ///< with skip_bad: error that makes the labels invalid; then `objects` is empty
};
/// Contents of a label file of Label Studio, CVAT, LabelMe, CSV or CreateML.
struct LabelFile {
  std::vector<LabeledImage> images;
  std::map<std::string, int64_t> left_out;  ///< number of skipped shapes by kind, such as lines or points
};
/// Parse the text of a label file. With `skip_bad`, an image with invalid labels is returned with a fault
/// instead of a UserError. Damaged JSON or XML and invalid table columns throw a UserError in either case.
LabelFile parse_label_studio(std::string_view text, std::string_view name, bool skip_bad = false);
LabelFile parse_cvat(std::string_view text, std::string_view name, bool skip_bad = false);
LabelFile parse_labelme(std::string_view text, std::string_view name, bool skip_bad = false);
LabelFile parse_box_table(std::string_view text, std::string_view name, bool skip_bad = false);
LabelFile parse_createml(std::string_view text, std::string_view name, bool skip_bad = false);

/// True if the start of a file matches `format`: Label Studio, CVAT, LabelMe, CSV or CreateML.
bool has_format(const fs::path& file, BoxFormat format);

/// Read the labels of a split in one format, with the results and errors of read_boxes().
BoxedImages read_coco(const fs::path& path, std::string_view split, const LabelOptions& options);
BoxedImages read_voc(const fs::path& folder, std::string_view split, const LabelOptions& options);
BoxedImages read_yolo(const fs::path& index, std::string_view split, const LabelOptions& options);
/// Reads Label Studio, CVAT, LabelMe, CSV and CreateML.
BoxedImages read_label_files(const fs::path& path, std::string_view split, const LabelOptions& options);

/// Find the label files of a format in a path (a file or folder); the result is empty or false if there are
/// none.
std::vector<fs::path> find_coco(const fs::path& path);
bool has_voc(const fs::path& path);
std::optional<fs::path> find_yolo(const fs::path& path);
std::vector<fs::path> find_label_files(const fs::path& path, BoxFormat format);

/// Returns the label file of a split: the one whose name, or whose folder's name, contains the split's name;
/// nullopt if none. Throws a UserError if several match.
std::optional<fs::path> file_of_split(const std::vector<fs::path>& files, std::string_view split);
/// Returns the folders in which label files are searched: `path`, annotations/, labels/ and the folders of
/// the splits.
std::vector<fs::path> label_folders(const fs::path& path);
/// Returns the folders in which the images of a label file are searched: image names may be relative to any
/// of them.
std::vector<fs::path> image_roots(const fs::path& label_file);

}  // namespace hearth::data
