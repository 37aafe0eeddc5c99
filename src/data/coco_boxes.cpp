#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <functional>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "base/file.h"
#include "base/json_reader.h"
#include "base/text.h"
#include "data/boxes_format.h"

namespace hearth::data {
namespace {

struct Category {
  int64_t id = 0;
  std::string name;
  bool operator==(const Category&) const = default;
};

struct Annotation {
  int64_t number = 0;  ///< its place in the list, from 1
  size_t byte = 0;
  int64_t image_id = 0, category_id = 0;
  std::array<double, 4> bbox{};  ///< x, y, width, height
  double area = -1;
  bool crowd = false;
};

/// Goes through the three lists that matter; what else there is, is skipped.
class CocoParser {
 public:
  CocoParser(std::string_view text, std::string_view name) : json_(text), name_(name) {}

  std::vector<Category> categories;
  std::vector<BoxedPicture> pictures;
  std::vector<Annotation> annotations;
  int64_t repeated_annotations = 0;

  void parse(bool only_categories) {
    try {
      if (json_.peek() != '{') refuse("a JSON object with images, annotations and categories");
      json_.read_object([&](const std::string& key) { read_list(key, only_categories); });
      json_.expect_end();
    } catch (const JsonFault& fault) {
      user_error("{}: {}", name_, fault.sentence);
    }
    const auto demand = [&](bool seen, const char* key) {
      if (!seen)
        user_error("{}: expected COCO's labels of objects with a list \"{}\", found none", name_, key);
    };
    demand(seen_.contains("categories"), "categories");
    if (only_categories) return;
    demand(seen_.contains("images"), "images");
    demand(seen_.contains("annotations"), "annotations");
  }

  /// "FILE: annotation 7 (byte 1234)".
  std::string where(const char* what, int64_t number, size_t byte) const {
    return fmt::format("{}: {} {} (byte {})", name_, what, number, byte);
  }

 private:
  [[noreturn]] void refuse(std::string_view expected) {
    user_error("{}: expected {} at {} {} (byte {})", name_, expected, what_, number_, json_.at() + 1);
  }

  void read_list(const std::string& key, bool only_categories) {
    const bool wanted =
        key == "categories" || (!only_categories && (key == "images" || key == "annotations"));
    if (!wanted) return json_.skip();
    if (!seen_.insert(key).second) user_error("{}: expected one list \"{}\", found two", name_, key);
    what_ = key == "categories" ? "category" : key == "images" ? "image" : "annotation";
    number_ = 0;
    if (json_.peek() != '[') refuse("a list \"" + key + "\"");
    json_.read_array([&] {
      ++number_;
      if (json_.peek() != '{') refuse("an object");
      if (key == "categories") {
        read_category();
      } else if (key == "images") {
        read_image();
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
        category.id = read_integer("id");
        has_id = true;
      } else if (key == "name") {
        category.name = read_text("name");
      } else {
        json_.skip();
      }
    });
    if (!has_id || category.name.empty()) refuse("a category with id and name");
    if (!category_ids_.insert(category.id).second) refuse("ids that differ, got one twice");
    categories.push_back(std::move(category));
  }

  void read_image() {
    BoxedPicture picture;
    bool has_id = false;
    json_.read_object([&](const std::string& key) {
      if (key == "id") {
        picture.id = read_integer("id");
        has_id = true;
      } else if (key == "file_name") {
        picture.file = read_text("file_name");
      } else if (key == "width") {
        picture.width = read_integer("width");
      } else if (key == "height") {
        picture.height = read_integer("height");
      } else {
        json_.skip();
      }
    });
    if (!has_id || picture.file.empty()) refuse("an image with id and file_name");
    const auto is_side = [](int64_t side) { return side >= 0 && side <= 1 << 20; };
    if (!is_side(picture.width) || !is_side(picture.height)) refuse("a width and a height of a picture");
    if (!image_ids_.insert(picture.id).second) refuse("ids that differ, got one twice");
    pictures.push_back(std::move(picture));
  }

  void read_annotation() {
    Annotation annotation{.number = number_, .byte = json_.at() + 1};
    bool has_image = false, has_category = false, has_box = false;
    json_.read_object([&](const std::string& key) {
      if (key == "image_id") {
        annotation.image_id = read_integer("image_id");
        has_image = true;
      } else if (key == "category_id") {
        annotation.category_id = read_integer("category_id");
        has_category = true;
      } else if (key == "id") {
        repeated_annotations += annotation_ids_.insert(read_integer("id")).second ? 0 : 1;
      } else if (key == "bbox") {
        annotation.bbox = read_bbox();
        has_box = true;
      } else if (key == "area") {
        annotation.area = read_real("area");
      } else if (key == "iscrowd") {
        annotation.crowd = read_flag();
      } else {
        json_.skip();
      }
    });
    if (!has_image || !has_category || !has_box) refuse("an annotation with image_id, category_id and bbox");
    annotations.push_back(annotation);
  }

  std::array<double, 4> read_bbox() {
    std::array<double, 4> bbox{};
    size_t count = 0;
    if (json_.peek() != '[') refuse("a list of four numbers for bbox");
    json_.read_array([&] {
      if (count == bbox.size()) refuse("four numbers for bbox");
      bbox[count++] = read_real("bbox");
    });
    if (count != bbox.size()) refuse("four numbers for bbox");
    return bbox;
  }

  bool at_number() {
    const char c = json_.peek();
    return c == '-' || (c >= '0' && c <= '9');
  }
  double read_real(std::string_view key) {
    if (!at_number()) refuse(fmt::format("a number for {}", key));
    const auto value = parse_number(json_.read_number());
    if (!value) refuse(fmt::format("a number that can be held for {}", key));
    return *value;
  }
  /// Exactly, also where it is written as 12.0.
  int64_t read_integer(std::string_view key) {
    if (!at_number()) refuse(fmt::format("an integer for {}", key));
    const std::string_view digits = json_.read_number();
    int64_t value = 0;
    if (std::from_chars(digits.data(), digits.data() + digits.size(), value).ptr ==
        digits.data() + digits.size())
      return value;
    const auto real = parse_number(digits);
    if (!real || *real != std::floor(*real) || std::fabs(*real) > 9e15)
      refuse(fmt::format("an integer for {}", key));
    return static_cast<int64_t>(*real);
  }
  bool read_flag() {
    if (at_number()) return read_integer("iscrowd") != 0;
    if (const char c = json_.peek(); c != 't' && c != 'f') refuse("0 or 1 for iscrowd");
    return json_.read_word() == "true";
  }
  std::string read_text(std::string_view key) {
    if (json_.peek() != '"') refuse(fmt::format("text for {}", key));
    return json_.read_string();
  }

  JsonReader json_;
  std::string_view name_;
  std::string_view what_ = "the start, object";
  int64_t number_ = 0;
  std::unordered_set<std::string> seen_;
  std::unordered_set<int64_t> category_ids_, image_ids_, annotation_ids_;
};

void add_annotations(const CocoParser& parser, std::string_view name, BoxedPictures& set) {
  std::unordered_map<int64_t, size_t> picture_of;
  std::unordered_map<int64_t, int32_t> class_of;
  for (size_t i = 0; i < set.pictures.size(); ++i) picture_of[set.pictures[i].id] = i;
  for (size_t i = 0; i < set.category_ids.size(); ++i)
    class_of[set.category_ids[i]] = static_cast<int32_t>(i);
  for (const Annotation& annotation : parser.annotations) {
    const std::string where = parser.where("annotation", annotation.number, annotation.byte);
    const auto label = class_of.find(annotation.category_id);
    if (label == class_of.end())
      user_error("{}: expected a category_id of the list \"categories\", got {}", where,
                 annotation.category_id);
    const auto picture = picture_of.find(annotation.image_id);
    if (picture == picture_of.end()) {
      set.notes.push_back(fmt::format("{}: left out, there is no image {}", where, annotation.image_id));
      continue;
    }
    const auto& [x, y, width, height] = annotation.bbox;
    Box box{.x0 = x,
            .y0 = y,
            .x1 = x + width,
            .y1 = y + height,
            .label = label->second,
            .crowd = annotation.crowd,
            .area = annotation.area < 0 ? width * height : annotation.area};
    check_corners(box, where);
    add_box(box, where, set.pictures[picture->second], set.notes);
  }
  if (parser.repeated_annotations > 0)
    set.notes.push_back(
        fmt::format("{}: {} annotations have an id that another one has, which matters to nothing", name,
                    parser.repeated_annotations));
}

/// Where the pictures of a JSON file may lie: beside it, in the folder above, or in a folder there that has
/// the name of the split ("instances_val2017.json": val2017/).
std::vector<fs::path> picture_roots(const fs::path& json) {
  const fs::path folder = json.parent_path();
  const std::string stem = json.stem().string();
  const std::string split = stem.substr(stem.find_last_of('_') + 1);
  std::vector<fs::path> roots;
  for (const fs::path& top : {folder, folder / ".."}) {
    for (const fs::path& inside : {fs::path(), fs::path("images"), fs::path(split),
                                   fs::path("images") / split, fs::path("JPEGImages"), fs::path("data")})
      roots.push_back((top / inside).lexically_normal());
  }
  return roots;
}

void find_pictures(const fs::path& json, BoxedPictures& set) {
  const std::vector<fs::path> roots = picture_roots(json);
  const auto holds = [](const fs::path& root, const BoxedPicture& picture) {
    std::error_code ignored;
    return fs::is_regular_file(root / picture.file, ignored);
  };
  for (const BoxedPicture& picture : set.pictures) {
    const auto root = std::ranges::find_if(roots, [&](const fs::path& at) { return holds(at, picture); });
    if (root == roots.end()) continue;
    std::erase_if(set.pictures, [&](BoxedPicture& each) {
      const bool there = holds(*root, each);
      if (!there)
        set.notes.push_back(fmt::format("{}: image {} left out, there is no {}", json.string(), each.id,
                                        printable((*root / each.file).string(), false)));
      each.file = *root / each.file;
      return !there;
    });
    return;
  }
  if (set.pictures.empty()) return;
  user_error("expected the pictures of {} beside it or in {}, found none (the first is {})", json.string(),
             roots[1].string(), printable(set.pictures[0].file.string(), false));
}

/// Both splits must mean the same classes by the same ids.
void check_same_classes(const fs::path& train, const fs::path& other, const BoxedPictures& set) {
  const MappedFile file(train);
  const std::span<const std::byte> bytes = file.bytes();
  const std::string name = train.string();
  CocoParser parser({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, name);
  parser.parse(true);
  std::ranges::sort(parser.categories, {}, &Category::id);
  bool same = parser.categories.size() == set.class_names.size();
  for (size_t i = 0; same && i < set.class_names.size(); ++i)
    same = parser.categories[i] == Category{set.category_ids[i], set.class_names[i]};
  if (!same)
    user_error("expected the categories of {} in {} too, found others", train.string(), other.string());
}

bool is_coco_name(const std::string& name) {
  constexpr std::array kOthers{"captions", "person_keypoints", "panoptic", "stuff", "image_info"};
  return std::ranges::none_of(kOthers, [&](const char* other) { return name.starts_with(other); });
}

/// COCO's JSON has its lists at the top, of which one comes within the first bytes.
bool looks_like_coco(const fs::path& path) {
  constexpr size_t kMost = 1 << 16;
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              std::min(file.bytes().size(), kMost));
  const auto first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == text.npos || text[first] != '{') return false;
  return text.find("\"images\"") != text.npos || text.find("\"annotations\"") != text.npos ||
         text.find("\"categories\"") != text.npos;
}

/// Of several files the one whose name, or whose folder's, has the split in it.
std::optional<fs::path> file_of(const std::vector<fs::path>& files, std::string_view split) {
  for (const std::string& name : split_names(split)) {
    std::vector<fs::path> fits;
    for (const fs::path& file : files) {
      const std::string stem = file.stem().string();
      if (stem.find(name) != stem.npos || file.parent_path().filename() == name) fits.push_back(file);
    }
    if (fits.size() > 1)
      user_error("expected one file for '{}', found {} and {}; try naming the file itself", split,
                 fits[0].string(), fits[1].string());
    if (fits.size() == 1) return fits[0];
  }
  return std::nullopt;
}

BoxedPictures read_json(const fs::path& json) {
  const MappedFile file(json);
  const std::string name = json.string();
  BoxedPictures set =
      parse_coco({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()}, name);
  find_pictures(json, set);
  return set;
}

}  // namespace

BoxedPictures parse_coco(std::string_view text, std::string_view name) {
  CocoParser parser(text, name);
  parser.parse(false);
  if (parser.categories.empty()) user_error("{}: expected at least one category, found none", name);
  std::ranges::sort(parser.categories, {}, &Category::id);
  BoxedPictures set{.pictures = std::move(parser.pictures)};
  for (Category& category : parser.categories) {
    set.class_names.push_back(std::move(category.name));
    set.category_ids.push_back(category.id);
  }
  for (const BoxedPicture& picture : set.pictures) {
    if (picture.width == 0 || picture.height == 0)
      user_error("{}: expected width and height of image {}, found none", name, picture.id);
  }
  std::ranges::stable_sort(set.pictures, {}, [](const BoxedPicture& p) { return p.file.native(); });
  add_annotations(parser, name, set);
  return set;
}

std::vector<fs::path> find_coco(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    return path.extension() == ".json" ? std::vector<fs::path>{path} : std::vector<fs::path>{};
  }
  std::vector<fs::path> files;
  for (const char* inside : {"", "annotations", "train", "valid", "val", "test"}) {
    for (fs::path& file : sorted_files(path / inside, ".json")) {
      if (is_coco_name(file.filename().string()) && looks_like_coco(file)) files.push_back(std::move(file));
    }
  }
  const auto is_instances = [](const fs::path& f) { return f.filename().string().starts_with("instances_"); };
  if (std::ranges::any_of(files, is_instances)) std::erase_if(files, std::not_fn(is_instances));
  return files;
}

BoxedPictures read_coco(const fs::path& path, std::string_view split) {
  const std::vector<fs::path> files = find_coco(path);
  if (files.empty())
    user_error("expected a JSON file of COCO in {} or its annotations/, found none", path.string());
  if (files.size() == 1) {
    BoxedPictures set = read_json(files[0]);
    take_share(split, files[0], set);
    return set;
  }
  const auto file = file_of(files, split);
  if (!file)
    user_error("expected a JSON file for '{}' in {}, found {} for something else", split, path.string(),
               files[0].string());
  BoxedPictures set = read_json(*file);
  if (const auto train = file_of(files, "train"); train && *train != *file)
    check_same_classes(*train, *file, set);
  return set;
}

}  // namespace hearth::data
