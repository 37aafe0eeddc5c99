#include <algorithm>
#include <array>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"

namespace hearth::data {
namespace {

/// First number assigned to string ids: far above usual numeric ids, so that they do not collide.
constexpr int64_t kFirstTextId = 1'000'000'000'000;

struct Category {
  int64_t id = 0;
  std::string name;
};

struct Annotation {
  int64_t number = 0;  ///< position in the list, from 1
  size_t byte = 0;
  int64_t image_id = 0, category_id = 0;
  Box box;
  double area = -1;
  bool crowd = false;
  bool has_shape = true;  ///< false if the annotation has neither a box nor an outline with nonzero area
  Outline outline;
  bool has_image = false;  ///< true once image_id has been read
  std::string fault = {};  ///< with skip_bad: error that makes the annotation invalid
};

/// Maps string ids to numbers; a string of digits maps to its number.
class Ids {
 public:
  int64_t read(LabelJson& json, std::string_view key) {
    if (json.peek() != '"') return json.read_integer(key);
    std::string text = json.read_text(key);
    if (const auto number = as_integer(text)) return *number;
    return numbers_.try_emplace(std::move(text), kFirstTextId + std::ssize(numbers_)).first->second;
  }

 private:
  /// Converts decimal numbers without leading zeros only, because "07" and "7" are different ids.
  static std::optional<int64_t> as_integer(const std::string& text) {
    constexpr size_t kMaxDigits = 12;
    const bool is_plain = !text.empty() && text.size() <= kMaxDigits &&
                          text.find_first_not_of("0123456789") == text.npos &&
                          (text[0] != '0' || text.size() == 1);
    return is_plain ? std::optional<int64_t>(std::stoll(text)) : std::nullopt;
  }

  std::unordered_map<std::string, int64_t> numbers_;
};

/// Parser of the lists images, annotations and categories; other members are skipped.
class CocoParser {
 public:
  enum class Part { all, classes };
  CocoParser(std::string_view text, std::string_view name, Part part, const LabelOptions& options)
      : json_(text, name),
        name_(name),
        part_(part),
        keep_outlines_(options.keep_outlines),
        skip_bad_(options.skip_bad) {}

  std::vector<Category> categories;
  std::vector<BoxedImage> images;
  std::vector<Annotation> annotations;
  std::unordered_set<int64_t> used_categories;
  int64_t repeated_annotations = 0;
  std::unordered_set<int64_t> repeated_images;  ///< with skip_bad: ids that more than one image has
  std::vector<std::string>
      unidentified_images;  ///< with skip_bad: errors of images that have neither id nor file_name

  void parse() {
    json_.read_file([&] {
      if (json_.peek() != '{') json_.refuse("a JSON object with images, annotations and categories");
      json_.read_object([&](const std::string& key) { read_list(key); });
    });
    const auto demand = [&](const char* key) {
      if (!seen_.contains(key))
        user_error("{}: expected COCO's labels of objects with a list \"{}\", found none", name_, key);
    };
    demand("categories");
    if (part_ == Part::all) demand("images");
    demand("annotations");
    if (categories.empty()) user_error("{}: expected at least one category, found none", name_);
    if (!has_text_ids()) std::ranges::sort(categories, {}, &Category::id);
  }

  bool has_text_ids() const {
    return std::ranges::any_of(categories, [](const Category& one) { return one.id >= kFirstTextId; });
  }

  std::string where(const Annotation& annotation) const {
    return json_.where("annotation", annotation.number, annotation.byte);
  }

 private:
  void read_list(const std::string& key) {
    const bool wanted =
        key == "categories" || key == "annotations" || (part_ == Part::all && key == "images");
    if (!wanted) return json_.skip();
    if (!seen_.insert(key).second) user_error("{}: expected one list \"{}\", found two", name_, key);
    const char* what = key == "categories" ? "category" : key == "images" ? "image" : "annotation";
    json_.read_list(what, [&] {
      if (key == "categories") {
        read_category();
      } else if (key == "images") {
        read_image();
      } else if (part_ == Part::classes) {
        read_use();
      } else {
        read_annotation();
      }
    });
  }

  void read_category() {
    Category category;
    bool has_id = false;
    json_.read_object([&](const std::string& key) {
      if (key == "id") {
        category.id = category_ids_.read(json_, key);
        has_id = true;
      } else if (key == "name") {
        category.name = json_.read_text(key);
      } else {
        json_.skip();
      }
    });
    if (!has_id || category.name.empty()) json_.refuse("a category with id and name");
    if (!known_categories_.insert(category.id).second)
      json_.refuse(fmt::format("a unique id, got {} again", category.id));
    categories.push_back(std::move(category));
  }

  std::string* kept(std::string& fault) const { return skip_bad_ ? &fault : nullptr; }

  void read_image() {
    BoxedImage image;
    bool has_id = false;
    const auto read_members = [&](bool with_size) {
      json_.read_object([&](const std::string& key) {
        if (key == "id") {
          image.id = image_ids_.read(json_, key);
          has_id = true;
        } else if (key == "file_name") {
          image.file = json_.read_text(key);
        } else if (with_size && key == "width") {
          image.width = json_.read_integer(key);
        } else if (with_size && key == "height") {
          image.height = json_.read_integer(key);
        } else {
          json_.skip();
        }
      });
      if (!has_id || image.file.empty()) json_.refuse("an image with id and file_name");
      if (!is_image_side(image.width) || !is_image_side(image.height))
        json_.refuse("a width and a height of an image");
    };
    json_.read_record(
        kept(image.fault), [&] { read_members(true); }, [&] { read_members(false); });
    if (!has_id || image.file.empty()) {
      unidentified_images.push_back(std::move(image.fault));
      return;
    }
    if (!known_images_.insert(image.id).second) {
      if (!skip_bad_) json_.refuse(fmt::format("a unique id, got {} again", image.id));
      repeated_images.insert(image.id);
    }
    images.push_back(std::move(image));
  }

  /// Reads only the category of an annotation, and adds it to used_categories.
  void read_use() {
    json_.read_object([&](const std::string& key) { key == "category_id" ? read_used_id() : json_.skip(); });
  }
  void read_used_id() {
    std::string ignored;
    json_.read_record(
        kept(ignored), [&] { used_categories.insert(category_ids_.read(json_, "category_id")); }, [] {});
  }

  /// Reads only the ids of an invalid annotation. Its category counts as used, so that the files of all
  /// splits have the same classes.
  void read_ids(Annotation& annotation) {
    std::string ignored;
    const auto read_image_id = [&] {
      annotation.image_id = image_ids_.read(json_, "image_id");
      annotation.has_image = true;
    };
    json_.read_object([&](const std::string& key) {
      if (key == "category_id") {
        read_used_id();
      } else if (key == "image_id") {
        json_.read_record(&ignored, read_image_id, [] {});
      } else {
        json_.skip();
      }
    });
  }

  void read_annotation() {
    Annotation annotation{.number = json_.number(), .byte = json_.byte()};
    json_.read_record(
        kept(annotation.fault), [&] { read_members(annotation); }, [&] { read_ids(annotation); });
    if (!keep_outlines_) annotation.outline = {};
    annotations.push_back(std::move(annotation));
  }

  void read_members(Annotation& annotation) {
    bool has_category = false, has_box = false;
    std::optional<JsonReader> segmentation;
    json_.read_object([&](const std::string& key) {
      if (key == "image_id") {
        annotation.image_id = image_ids_.read(json_, key);
        annotation.has_image = true;
      } else if (key == "category_id") {
        annotation.category_id = category_ids_.read(json_, key);
        has_category = true;
      } else if (key == "id") {
        repeated_annotations += known_annotations_.insert(annotation_ids_.read(json_, key)).second ? 0 : 1;
      } else if (key == "bbox") {
        has_box = read_bbox(annotation.box);
      } else if (key == "area" && json_.at_number()) {
        annotation.area = json_.read_real(key);
      } else if (key == "iscrowd" && json_.peek() != 'n') {
        annotation.crowd = json_.read_flag(key);
      } else {
        if (key == "segmentation") segmentation = json_.mark();
        json_.skip();
      }
    });
    if (!annotation.has_image || !has_category || (!has_box && !segmentation))
      json_.refuse("an annotation with image_id, category_id and bbox or segmentation");
    if (segmentation && (!has_box || keep_outlines_))
      json_.read_at(*segmentation, [&] { annotation.outline = read_segmentation(); });
    if (!has_box) take_box_of_outline(annotation);
    used_categories.insert(annotation.category_id);
  }

  /// Reads a bounding box. Returns false for null and an empty list, which some tools write for an annotation
  /// without a box.
  bool read_bbox(Box& box) {
    if (json_.peek() == 'n') {
      json_.skip();
      return false;
    }
    std::array<double, 4> bbox{};
    size_t count = 0;
    if (json_.peek() != '[') json_.refuse("a list of four numbers for bbox");
    json_.read_inner_list("bbox", [&] {
      if (count == bbox.size()) json_.refuse("four numbers for bbox");
      bbox.at(count++) = json_.read_real("bbox");
    });
    if (count == 0) return false;
    if (count != bbox.size()) json_.refuse("four numbers for bbox");
    box = {.x0 = bbox[0], .y0 = bbox[1], .x1 = bbox[0] + bbox[2], .y1 = bbox[1] + bbox[3]};
    box.area = bbox[2] * bbox[3];
    return true;
  }

  static void take_box_of_outline(Annotation& annotation) {
    const auto extent = annotation.outline.empty() ? std::nullopt : extent_of(annotation.outline);
    annotation.has_shape = extent.has_value();
    if (!extent) return;
    annotation.box = {.x0 = extent->x0, .y0 = extent->y0, .x1 = extent->x1, .y1 = extent->y1};
    annotation.box.area = extent->area;
  }

  /// Reads an outline: a list of polygons, one polygon as a flat list of numbers, or a run-length encoded
  /// bitmap (RLE).
  Outline read_segmentation() {
    Outline outline;
    if (json_.peek() == '{') {
      read_runs(outline);
    } else if (json_.peek() == '[') {
      std::vector<double> flat;
      json_.read_inner_list("segmentation", [&] {
        if (json_.at_number()) {
          flat.push_back(json_.read_real("segmentation"));
        } else {
          std::vector<double> polygon;
          json_.read_inner_list("segmentation", [&] { polygon.push_back(json_.read_real("segmentation")); });
          add_polygon(std::move(polygon), outline);
        }
      });
      add_polygon(std::move(flat), outline);
    } else {
      json_.skip();
    }
    return outline;
  }

  /// Adds a polygon to the outline; ignores one of fewer than three corners, because it has no area.
  void add_polygon(std::vector<double> polygon, Outline& outline) {
    constexpr size_t kMinNumbers = 6;
    if (polygon.size() % 2 != 0) json_.refuse("pairs of x and y for segmentation");
    if (polygon.size() >= kMinNumbers) outline.polygons.push_back(std::move(polygon));
  }

  void read_runs(Outline& outline) {
    std::string compressed;
    std::vector<int64_t> size;
    json_.read_object([&](const std::string& key) {
      if (key == "size") {
        json_.read_inner_list(key, [&] { size.push_back(json_.read_integer(key)); });
      } else if (key == "counts" && json_.peek() == '"') {
        compressed = json_.read_text(key);
      } else if (key == "counts") {
        json_.read_inner_list(key, [&] {
          const int64_t run = json_.read_integer(key);
          if (run < 0 || run > UINT32_MAX) json_.refuse("run lengths for counts");
          outline.runs.push_back(static_cast<uint32_t>(run));
        });
      } else {
        json_.skip();
      }
    });
    if (size.size() != 2 || !is_image_side(size[0]) || !is_image_side(size[1]))
      json_.refuse("a height and a width for size");
    outline.height = size[0];
    outline.width = size[1];
    if (!compressed.empty())
      outline.runs = decode_coco_runs(compressed, size[0] * size[1]).value_or(std::vector<uint32_t>());
    if (!fills_bitmap(outline))
      json_.refuse(fmt::format("counts that add up to {} x {} pixels", size[1], size[0]));
  }

  LabelJson json_;
  std::string_view name_;
  Part part_;
  bool keep_outlines_, skip_bad_;
  std::unordered_set<std::string> seen_;
  Ids category_ids_, image_ids_, annotation_ids_;
  std::unordered_set<int64_t> known_categories_, known_images_, known_annotations_;
};

/// Adds the box of a valid annotation to its image.
void add_annotation(Annotation& annotation, int32_t label, const std::string& where, BoxedImage& image,
                    bool keep_outlines, std::vector<std::string>& notes) {
  if (!annotation.has_shape) {
    notes.push_back(fmt::format("{}: skipped, it has neither a box nor an outline with area", where));
    return;
  }
  const Outline& outline = annotation.outline;
  if (!outline.runs.empty() && (outline.width != image.width || outline.height != image.height))
    user_error("{}: expected a segmentation of {}x{} pixels, as its image has, got {}x{}", where, image.width,
               image.height, outline.width, outline.height);
  Box box = annotation.box;
  box.label = label;
  box.crowd = annotation.crowd;
  if (annotation.area >= 0) box.area = annotation.area;
  check_corners(box, where);
  add_box(box, where, image, notes, keep_outlines ? &annotation.outline : nullptr);
}

void add_annotations(CocoParser& parser, std::string_view name, const LabelOptions& options,
                     BoxedImages& set) {
  std::unordered_map<int64_t, size_t> image_of;
  std::unordered_map<int64_t, int32_t> class_of;
  for (size_t i = 0; i < set.images.size(); ++i) image_of[set.images[i].id] = i;
  for (size_t i = 0; i < parser.categories.size(); ++i)
    class_of[parser.categories[i].id] = static_cast<int32_t>(i);
  for (Annotation& annotation : parser.annotations) {
    const std::string where = parser.where(annotation);
    if (!annotation.has_image) {
      set.notes.push_back(describe_skipped_labels(annotation.fault));
      continue;
    }
    const auto found = image_of.find(annotation.image_id);
    if (found == image_of.end()) {
      set.notes.push_back(fmt::format("{}: skipped, there is no image {}", where, annotation.image_id));
      continue;
    }
    BoxedImage& image = set.images[found->second];
    read_or_keep_fault(image, set.notes, options.skip_bad, [&] {
      if (!annotation.fault.empty()) throw UserError(annotation.fault);
      const auto label = class_of.find(annotation.category_id);
      if (label == class_of.end())
        user_error("{}: expected a category_id of the list \"categories\", got {}", where,
                   annotation.category_id);
      add_annotation(annotation, label->second, where, image, options.keep_outlines, set.notes);
    });
  }
  if (parser.repeated_annotations > 0)
    set.notes.push_back(
        fmt::format("{}: {} annotations have the id of another annotation; ids of annotations are not used",
                    name, parser.repeated_annotations));
}

/// Returns a CocoFile with class names and category ids only. If the ids are strings, classes are numbered
/// from 1.
CocoFile classes_of(const CocoParser& parser) {
  CocoFile file;
  const bool has_text_ids = parser.has_text_ids();
  for (const Category& category : parser.categories) {
    BoxedImages& set = file.labels;
    set.class_names.push_back(category.name);
    set.category_ids.push_back(has_text_ids ? std::ssize(set.class_names) : category.id);
    file.is_used.push_back(parser.used_categories.contains(category.id));
  }
  return file;
}

}  // namespace

CocoFile parse_coco_classes(std::string_view text, std::string_view name, const LabelOptions& options) {
  CocoParser parser(text, name, CocoParser::Part::classes, options);
  parser.parse();
  return classes_of(parser);
}

CocoFile parse_coco(std::string_view text, std::string_view name, const LabelOptions& options) {
  CocoParser parser(text, name, CocoParser::Part::all, options);
  parser.parse();
  CocoFile file = classes_of(parser);
  BoxedImages& set = file.labels;
  set.images = std::move(parser.images);
  for (const std::string& fault : parser.unidentified_images)
    set.notes.push_back(describe_skipped_labels(fault));
  for (BoxedImage& image : set.images) {
    read_or_keep_fault(image, set.notes, options.skip_bad, [&] {
      if (image.width == 0 || image.height == 0)
        user_error("{}: expected width and height of image {}, found none", name, image.id);
      if (parser.repeated_images.contains(image.id))
        user_error("{}: two images have the id {}; export the labels again", name, image.id);
    });
  }
  std::ranges::stable_sort(set.images, {}, [](const BoxedImage& p) { return p.file.native(); });
  add_annotations(parser, name, options, set);
  return file;
}

}  // namespace hearth::data
