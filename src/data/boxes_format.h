#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/box.h"

/// What the readers of boxes share, and the parsers of single files, which never touch another file.
namespace hearth::data {

/// Adds a box, clipped to the picture. Notes "WHERE: ..." where nothing is left of it or more than a pixel
/// was cut off.
void add_box(Box box, std::string_view where, BoxedPicture& picture, std::vector<std::string>& notes);

/// Whether every corner is a number within what a picture may have; else UserError.
void check_corners(const Box& box, std::string_view where);

/// Folders and files that stand for a split, the first that is there counts.
std::vector<std::string> split_names(std::string_view split);

/// Of a set without splits every fifth picture, in the order of names, is for tests and the others for
/// training; said in the notes.
void take_share(std::string_view split, const fs::path& path, BoxedPictures& set);

/// Pictures in the order of names, numbered from 1.
void number_pictures(BoxedPictures& set);

/// Sets width and height from the header of the image file.
void measure(BoxedPicture& picture, Exif exif);

/// A folder's files that end in `ending`, sorted; hidden ones are left out.
std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view ending);

/// The number that a text is, without blanks around it; nothing where it is none or not finite.
std::optional<double> parse_number(std::string_view text);

/// A VOC file as it stands: corners from 1, `name` and `line` of each object.
struct VocObject {
  std::string name;
  Box box;
  int64_t line = 0;
};
struct VocFile {
  std::string picture;            ///< <filename>; may be empty or wrong
  int64_t width = 0, height = 0;  ///< 0 where not given
  std::vector<VocObject> objects;
};
VocFile parse_voc(std::string_view text, std::string_view name);

/// COCO's JSON, with category ids replaced by classes; `file` of each picture is its file_name.
BoxedPictures parse_coco(std::string_view text, std::string_view name);

/// The lines of a YOLO label file: boxes of a picture whose size is known.
void parse_yolo(std::string_view text, std::string_view name, int64_t num_classes, BoxedPicture& picture,
                std::vector<std::string>& notes);

/// What a data.yaml says; paths as they stand.
struct YoloIndex {
  std::string root;
  std::vector<std::string> train, val, test;
  std::vector<std::string> class_names;
};
YoloIndex parse_yolo_index(const std::string& text, const std::string& name);

BoxedPictures read_coco(const fs::path& path, std::string_view split);
BoxedPictures read_voc(const fs::path& folder, std::string_view split, Exif exif);
BoxedPictures read_yolo(const fs::path& index, std::string_view split, Exif exif);

/// Files of each format under a path, nothing where there are none.
std::vector<fs::path> find_coco(const fs::path& path);
bool has_voc(const fs::path& path);
std::optional<fs::path> find_yolo(const fs::path& path);

}  // namespace hearth::data
