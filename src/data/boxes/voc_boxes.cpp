#include <algorithm>
#include <array>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_xml.h"
#include "data/captions/image_files.h"
#include "data/data_folder.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxXmlBytes = 64 << 20;

class VocParser : public LabelXml {
 public:
  explicit VocParser(std::string_view name) : LabelXml(name, "annotation", "VOC's labels") {}

  VocFile take(std::string_view text, bool skip_bad) {
    try {
      parse(text);
    } catch (const UserError& error) {
      if (!skip_bad) throw;
      file_.fault = error.what();
      file_.objects.clear();
    }
    return std::move(file_);
  }

 private:
  void start(std::string_view, const char**) override {
    if (path() != kObject) return;
    file_.objects.push_back({.line = line()});
    corners_seen_ = 0;
  }

  void end(std::string_view text) override {
    if (path() == kObject) {
      finish_object();
    } else if (path().starts_with(kInObject)) {
      read_of_object(path().substr(kInObject.size()), text, file_.objects.back());
    } else if (path() == "/annotation/filename") {
      file_.image = text;
    } else if (path() == "/annotation/size/width") {
      file_.width = read_side(text);
    } else if (path() == "/annotation/size/height") {
      file_.height = read_side(text);
    }
  }

  void read_of_object(std::string_view path, std::string_view text, VocObject& object) {
    if (path == "name") {
      object.name = text;
    } else if (path == "difficult") {
      object.box.difficult = read_number(text) != 0;
    } else if (path.starts_with("bndbox/")) {
      read_corner(path.substr(7), text, object.box);
    }
  }

  void read_corner(std::string_view corner, std::string_view text, Box& box) {
    constexpr auto kNames = std::to_array<std::string_view>({"xmin", "ymin", "xmax", "ymax"});
    const std::array<double*, 4> places{&box.x0, &box.y0, &box.x1, &box.y1};
    const auto at = static_cast<size_t>(std::ranges::find(kNames, corner) - kNames.begin());
    if (at == kNames.size()) return;
    if ((corners_seen_ >> at & 1) != 0)
      return refuse(fmt::format("the object has two <{}>; delete one", corner));
    *places.at(at) = read_number(text);
    corners_seen_ |= 1U << at;
  }

  void finish_object() {
    const VocObject& object = file_.objects.back();
    if (object.name.empty()) refuse_at(object.line, "the object has no <name>; add its class");
    if (corners_seen_ != 15)
      refuse_at(object.line, "the object needs xmin, ymin, xmax and ymax in its <bndbox>");
  }

  static constexpr std::string_view kObject = "/annotation/object", kInObject = "/annotation/object/";

  VocFile file_;
  unsigned corners_seen_ = 0;
};

/// Label files and images by base name without extension.
struct VocFolder {
  std::map<std::string, fs::path> labels, images;
  /// Base names of the images of each split; both have all names if the folder has no splits.
  std::vector<std::string> train, test;
  bool has_splits = false;
};

void add_labels(const fs::path& folder, std::map<std::string, fs::path>& labels) {
  for (fs::path& file : sorted_files(folder, ".xml")) labels[file.stem().string()] = std::move(file);
}

void add_images(const fs::path& folder, std::map<std::string, fs::path>& images) {
  for (fs::path& file : sorted_images(folder)) {
    const auto [at, added] = images.try_emplace(file.stem().string(), file);
    if (!added && at->second.parent_path() == folder)
      user_error("{}: {} has the same name; keep one of them", at->second.string(), file.filename().string());
  }
}

/// Reads the names in an image list: the first word of each line.
std::vector<std::string> read_list(const fs::path& file) {
  const std::string text = read_text(file, kMaxXmlBytes);
  std::vector<std::string> names;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = trimmed(take_line(rest));
    if (!line.empty()) names.emplace_back(line.substr(0, line.find_first_of(kBlank)));
  }
  return names;
}

std::vector<std::string> keys_of(const std::map<std::string, fs::path>& labels,
                                 const std::map<std::string, fs::path>& images) {
  std::set<std::string> names;
  for (const auto& [name, file] : labels) names.insert(name);
  for (const auto& [name, file] : images) names.insert(name);
  return {names.begin(), names.end()};
}

/// Reads the image lists of both splits (ImageSets/Main); returns false if a list is missing.
bool read_lists(const fs::path& path, VocFolder& folder) {
  const auto list_of = [&](std::string_view name) {
    return path / "ImageSets" / "Main" / fmt::format("{}.txt", name);
  };
  const auto exists = [&](std::string_view name) { return path_exists(list_of(name)); };
  const auto train = find_split_name("train", exists), test = find_split_name("test", exists);
  if (!train || !test) return false;
  folder.train = read_list(list_of(*train));
  folder.test = read_list(list_of(*test));
  return true;
}

/// Reads train/ and val/ (or other names of the splits, data/split_names.h), which contain XML files and
/// their images. Returns false if a folder is missing.
bool read_split_folders(const fs::path& path, std::string_view split, VocFolder& folder) {
  const auto has_labels = [&](std::string_view name) { return !sorted_files(path / name, ".xml").empty(); };
  const auto train_name = find_split_name("train", has_labels),
             test_name = find_split_name("test", has_labels);
  if (!train_name || !test_name) return false;
  VocFolder train, test;
  add_labels(path / *train_name, train.labels);
  add_labels(path / *test_name, test.labels);
  add_images(path / *train_name, train.images);
  add_images(path / *test_name, test.images);
  folder = split == "train" ? train : test;
  folder.train = keys_of(train.labels, train.images);
  folder.test = keys_of(test.labels, test.images);
  // read_labels() needs the label files of both splits, so that both have the same classes.
  folder.labels.insert(train.labels.begin(), train.labels.end());
  folder.labels.insert(test.labels.begin(), test.labels.end());
  return true;
}

VocFolder list_folder_of_voc(const fs::path& path, std::string_view split) {
  VocFolder folder;
  if (read_split_folders(path, split, folder)) {
    folder.has_splits = true;
    return folder;
  }
  for (const char* inside : {"Annotations", "annotations", ""}) {
    add_labels(path / inside, folder.labels);
    if (!folder.labels.empty()) break;
  }
  if (folder.labels.empty())
    user_error("expected XML files in {} or its Annotations/, found none", path.string());
  for (const char* inside : {"JPEGImages", "images", "Images", ""}) {
    add_images(path / inside, folder.images);
    if (!folder.images.empty()) break;
  }
  folder.has_splits = read_lists(path, folder);
  if (!folder.has_splits) folder.train = folder.test = keys_of(folder.labels, folder.images);
  return folder;
}

void add_objects(const VocFile& labels, const std::string& name, const BoxedImages& set, BoxedImage& image,
                 std::vector<std::string>& notes) {
  for (const VocObject& object : labels.objects) {
    const std::string where = fmt::format("{}:{}", name, object.line);
    Box box = object.box;
    check_corners(box, where);
    box.label = static_cast<int32_t>(std::ranges::lower_bound(set.class_names, object.name) -
                                     set.class_names.begin());
    // Corners count from 1 and are inclusive: xmin - 1 makes them half-open. Equal corners are a labeling
    // mistake rather than an object of one pixel and stay empty.
    if (box.x0 < box.x1) box.x0 -= 1;
    if (box.y0 < box.y1) box.y0 -= 1;
    box.area = (box.x1 - box.x0) * (box.y1 - box.y0);
    add_box(box, where, image, notes);
  }
}

/// Parses the label files of both splits and returns them by base name. The classes come from both splits.
std::map<std::string, VocFile> read_labels(const VocFolder& folder, bool skip_bad) {
  std::map<std::string, VocFile> files;
  for (const auto* names : {&folder.train, &folder.test}) {
    for (const std::string& name : *names) {
      const auto at = folder.labels.find(name);
      if (at == folder.labels.end() || files.contains(name)) continue;
      files[name] = parse_voc(read_file(at->second, kMaxXmlBytes), at->second.string(), skip_bad);
    }
  }
  return files;
}

/// Returns the image of a label file: the image of the same base name, otherwise the image named in
/// <filename>, unless another label file has the name of that image. Null if there is none.
const fs::path* find_image_of_labels(const VocFolder& folder, const std::string& name,
                                     const VocFile& labels) {
  if (const auto at = folder.images.find(name); at != folder.images.end()) return &at->second;
  const std::string given = fs::path(labels.image).stem().string();
  const auto at = folder.images.find(given);
  return at == folder.images.end() || folder.labels.contains(given) ? nullptr : &at->second;
}

/// Returns the images whose label file has a different name and refers to them by <filename>.
std::set<fs::path> images_by_filename(const VocFolder& folder, const std::map<std::string, VocFile>& labels) {
  std::map<fs::path, std::string> claimed;
  for (const auto& [name, file] : labels) {
    const fs::path* image = find_image_of_labels(folder, name, file);
    if (image == nullptr || image->stem() == name) continue;
    const auto [at, added] = claimed.try_emplace(*image, name);
    if (!added)
      user_error("{}: both {} and {} label this image; keep one of them", image->string(),
                 folder.labels.at(at->second).string(), folder.labels.at(name).string());
  }
  std::set<fs::path> images;
  for (const auto& [image, name] : claimed) images.insert(image);
  return images;
}

}  // namespace

VocFile parse_voc(std::string_view text, std::string_view name, bool skip_bad) {
  return VocParser(name).take(text, skip_bad);
}

bool has_voc(const fs::path& path) {
  if (!fs::is_directory(path)) return false;
  const auto has_labels = [&](std::string_view inside) {
    return std::ranges::any_of(sorted_files(path / inside, ".xml"),
                               [](const fs::path& file) { return !has_format(file, BoxFormat::cvat); });
  };
  return std::ranges::any_of(std::array{"Annotations", "annotations", ""}, has_labels) ||
         find_split_name("train", has_labels);
}

BoxedImages read_voc(const fs::path& path, std::string_view split, const LabelOptions& options) {
  const VocFolder folder = list_folder_of_voc(path, split);
  const std::map<std::string, VocFile> labels = read_labels(folder, options.skip_bad);
  std::set<std::string> names;
  std::string fault;
  for (const auto& [name, file] : labels) {
    for (const VocObject& object : file.objects) names.insert(object.name);
    if (fault.empty()) fault = file.fault;
  }
  if (names.empty())
    user_error("expected objects in the XML files of {}, found none{}", path.string(), first_fault(fault));
  BoxedImages set{.class_names = {names.begin(), names.end()}};
  for (size_t i = 1; i <= names.size(); ++i) set.category_ids.push_back(static_cast<int64_t>(i));
  const std::set<fs::path> claimed = images_by_filename(folder, labels);
  DataFolder data_folder(path, options.allow_outside);
  for (const std::string& name : split == "train" ? folder.train : folder.test) {
    const auto at = labels.find(name);
    const VocFile none;
    const VocFile& file = at == labels.end() ? none : at->second;
    const std::string where = at == labels.end() ? name : folder.labels.at(name).string();
    const fs::path* found = find_image_of_labels(folder, name, file);
    if (at == labels.end() && found != nullptr && claimed.contains(*found)) continue;
    if (found == nullptr) {
      set.notes.push_back(file.fault.empty()
                              ? fmt::format("{}: skipped, it has no image", printable(where, false))
                              : describe_skipped_labels(file.fault));
      continue;
    }
    data_folder.check(*found, where);
    BoxedImage image{.file = *found, .width = file.width, .height = file.height, .fault = file.fault};
    read_or_keep_fault(image, set.notes, options.skip_bad, [&] {
      if (image.width == 0 || image.height == 0) measure(image, options.exif);
      add_objects(file, where, set, image, set.notes);
      if (options.keep_outlines) image.outlines.resize(image.boxes.size());
    });
    set.images.push_back(std::move(image));
  }
  if (set.images.empty()) {
    user_error(
        "expected images for the {} XML files of {} in JPEGImages/, images/ or the folder of the XML files, "
        "found none",
        labels.size(), path.string());
  }
  number_images(set);
  if (!folder.has_splits) keep_split(split, path, set);
  return set;
}

}  // namespace hearth::data
