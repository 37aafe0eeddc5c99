#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "base/yaml.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"
#include "data/captions/image_files.h"
#include "data/data_folder.h"
#include "data/images/image.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxTextBytes = 64 << 20;
constexpr YamlKind kIndex{"data.yaml", "write only train:, val: and names: into the file"};

std::string scalar_of(const YAML::Node& node, std::string_view key, const std::string& name) {
  if (node.IsScalar()) return node.Scalar();
  user_error("{}:{}: expected text for {}", name, node.Mark().line + 1, key);
}

/// Parses the value of `key`, a path or a list of paths; empty if the key is missing or has no value.
std::vector<std::string> paths_of(const YAML::Node& node, std::string_view key, const std::string& name) {
  std::vector<std::string> paths;
  if (!node.IsDefined() || node.IsNull()) return paths;
  if (!node.IsSequence()) return {scalar_of(node, key, name)};
  for (const YAML::Node& each : node) paths.push_back(scalar_of(each, key, name));
  return paths;
}

/// Parses class names: a list, or a map from 0, 1, ... to names.
std::vector<std::string> names_of(const YAML::Node& node, const std::string& name) {
  std::vector<std::string> names;
  if (node.IsSequence()) {
    for (const YAML::Node& each : node) names.push_back(scalar_of(each, "a class's name", name));
    return names;
  }
  std::map<int64_t, std::string> by_number;
  for (const auto& entry : node) {
    const auto number = parse_number(scalar_of(entry.first, "a class's number", name));
    const int line = entry.first.Mark().line + 1;
    if (!number || *number < 0 || *number > 1e6 || *number != std::floor(*number))
      user_error("{}:{}: expected a class's number, got '{}'", name, line,
                 shortened(entry.first.Scalar(), 60));
    const std::string value = scalar_of(entry.second, "a class's name", name);
    if (!by_number.emplace(static_cast<int64_t>(*number), value).second)
      user_error("{}:{}: expected class numbers that differ, got {:g} twice", name, line, *number);
  }
  for (auto& [number, value] : by_number) {
    if (number != std::ssize(names))
      user_error("{}:{}: expected the names of classes 0 to {}, found none for class {}", name,
                 node.Mark().line + 1, by_number.rbegin()->first, names.size());
    names.push_back(std::move(value));
  }
  return names;
}

/// Splits a line at whitespace.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!(line = trimmed(line)).empty()) {
    const size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

/// Parses the numbers of a line after its class: fractions of the image's width or height.
std::vector<double> shares_of(std::span<const std::string_view> words, std::string_view where) {
  // Tolerated distance of corners beyond the image, as a fraction of its side: rounding puts some slightly
  // outside.
  constexpr double kBeyond = 0.05;
  std::vector<double> shares;
  for (const std::string_view word : words) {
    const auto value = parse_number(word);
    if (!value) user_error("{}: expected a number, got '{}'", where, shortened(word, 60));
    if (*value < -kBeyond || *value > 1 + kBeyond)
      user_error("{}: expected numbers from 0 to 1 (fractions of the image's width and height), got {:g}",
                 where, *value);
    shares.push_back(*value);
  }
  return shares;
}

/// Converts center and size, as fractions of the image's sides, to a box in pixels.
Box box_of(std::span<const double> shares, double width, double height) {
  return {.x0 = (shares[0] - shares[2] / 2) * width,
          .y0 = (shares[1] - shares[3] / 2) * height,
          .x1 = (shares[0] + shares[2] / 2) * width,
          .y1 = (shares[1] + shares[3] / 2) * height};
}

/// Converts the points of an outline, or the four corners of an oriented box, from fractions to pixels.
Outline outline_of(std::span<const double> shares, double width, double height) {
  Outline outline;
  std::vector<double>& polygon = outline.polygons.emplace_back();
  for (size_t i = 0; i < shares.size(); i += 2) {
    polygon.push_back(shares[i] * width);
    polygon.push_back(shares[i + 1] * height);
  }
  return outline;
}

int32_t class_of(std::string_view word, int64_t num_classes, std::string_view where) {
  const auto value = parse_number(word);
  if (!value || *value != std::floor(*value))
    user_error("{}: expected a class's number, got '{}'", where, shortened(word, 60));
  if (*value < 0 || *value >= static_cast<double>(num_classes))
    user_error("{}: expected a class from 0 to {}, got {:g}", where, num_classes - 1, *value);
  return static_cast<int32_t>(*value);
}

/// Resolves a path in data.yaml: relative to the key `path`, to the folder of data.yaml, or to that folder
/// without the leading "../" that some tools write by mistake. Prefers a path inside the data's folder.
fs::path resolve(const std::string& given, const fs::path& index, const YoloIndex& yaml, DataFolder& folder) {
  const fs::path beside = index.parent_path();
  std::string inside = given;
  while (inside.starts_with("../")) inside = inside.substr(3);
  const std::array candidates{(beside / yaml.root / given).lexically_normal(),
                              (beside / given).lexically_normal(), (beside / inside).lexically_normal()};
  std::optional<fs::path> outside;
  for (const fs::path& candidate : candidates) {
    if (!path_exists(candidate)) continue;
    if (folder.allows_outside() || folder.holds(candidate)) return candidate;
    if (!outside) outside = candidate;
  }
  if (outside) folder.check(*outside, index.string());
  user_error("{}: expected images at {}, found nothing", index.string(), candidates[0].string());
}

/// Adds the images below a folder, or those listed in a .txt file with paths relative to its folder.
void add_images(const fs::path& source, DataFolder& folder, std::vector<fs::path>& files) {
  if (fs::is_directory(source)) {
    std::error_code code;
    for (fs::recursive_directory_iterator at(source, code), end; !code && at != end; at.increment(code)) {
      if (!is_image_file(at->path()) || at->path().filename().string()[0] == '.') continue;
      folder.check(at->path(), source.string());
      files.push_back(at->path());
    }
    if (code) user_error("cannot list the folder {}: {}", source.string(), code.message());
    return;
  }
  const std::string text = read_file(source, kMaxTextBytes);
  int64_t line = 0;
  for (std::string_view rest = without_bom(text); !rest.empty();) {
    const std::string_view entry = trimmed(take_line(rest));
    ++line;
    if (entry.empty()) continue;
    const fs::path file = (source.parent_path() / entry).lexically_normal();
    const std::string where = fmt::format("{}:{}", source.string(), line);
    if (!is_image_file(file) || !path_exists(file))
      user_error("{}: expected an image ({}), found none at {}", where, kImageFormats,
                 printable(file.string(), false));
    folder.check(file, where);
    files.push_back(file);
  }
}

/// Returns the label file of an image: its path with the last images/ replaced by labels/.
fs::path label_file_of(const fs::path& image) {
  std::vector<fs::path> parts(image.begin(), image.end());
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i] != "images") continue;
    parts[i] = "labels";
    break;
  }
  fs::path file;
  for (const fs::path& part : parts) file /= part;
  return file.replace_extension(".txt");
}

void note_labels_without_images(const std::set<fs::path>& used, std::vector<std::string>& notes) {
  std::set<fs::path> folders;
  for (const fs::path& file : used) folders.insert(file.parent_path());
  for (const fs::path& folder : folders) {
    if (folder.string().find("labels") == std::string::npos) continue;
    for (const fs::path& file : sorted_files(folder, ".txt")) {
      if (used.contains(file) || file.filename() == "classes.txt") continue;
      notes.push_back(fmt::format("{}: skipped, it has no image", printable(file.string(), false)));
    }
  }
}

bool is_class_list(const fs::path& index) { return index.extension() == ".txt"; }

/// Returns the label file of an image. `may_be_in_image_folder`: true if it may also be in the image's
/// folder, as in data without a data.yaml.
fs::path find_label_file(const fs::path& image, bool may_be_in_image_folder) {
  const fs::path file = label_file_of(image);
  fs::path beside = image;
  beside.replace_extension(".txt");
  return may_be_in_image_folder && !path_exists(file) && path_exists(beside) ? beside : file;
}

void note_left_out(const YoloLines& lines, const fs::path& index, std::vector<std::string>& notes) {
  if (lines.num_outlines > 0 && !lines.keep_outlines)
    notes.push_back(
        fmt::format("{}: only the bounding boxes of outlines and oriented boxes are used ({} objects)",
                    index.string(), lines.num_outlines));
  if (lines.num_keypoints > 0)
    notes.push_back(fmt::format("{}: boxes are used without their key points ({} objects)", index.string(),
                                lines.num_keypoints));
}

void read_labels(BoxedImages& set, const fs::path& index, YoloLines lines, const LabelOptions& options) {
  std::set<fs::path> used;
  int64_t num_labeled = 0;
  for (BoxedImage& image : set.images) {
    const fs::path file = find_label_file(image.file, is_class_list(index));
    if (!used.insert(file).second)
      user_error("{}: two images have these labels; keep one of them", printable(file.string(), false));
    const bool is_labeled = path_exists(file);
    num_labeled += is_labeled ? 1 : 0;
    read_or_keep_fault(image, set.notes, options.skip_bad, [&] {
      measure(image, options.exif);
      if (!is_labeled) return;
      YoloLines read = lines;
      parse_yolo(read_file(file, kMaxTextBytes), file.string(), read, image, set.notes);
      lines = read;
    });
  }
  if (num_labeled == 0)
    user_error("{}: expected labels of the images, such as {}, found none", index.string(),
               label_file_of(set.images[0].file).string());
  note_labels_without_images(used, set.notes);
  note_left_out(lines, index, set.notes);
}

BoxedImages list_images(const std::vector<std::string>& class_names, std::vector<fs::path> files) {
  BoxedImages set{.class_names = class_names};
  for (size_t i = 0; i < set.class_names.size(); ++i) set.category_ids.push_back(static_cast<int64_t>(i));
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (fs::path& file : files) set.images.push_back({.file = std::move(file)});
  number_images(set);
  return set;
}

/// Parses kpt_shape and returns the number of values after each box: [17, 3] means 51.
int64_t keypoint_numbers_of(const YAML::Node& shape, const std::string& name) {
  if (!shape.IsDefined() || shape.IsNull()) return 0;
  const auto at = [&](size_t index) {
    const auto number = parse_number(scalar_of(shape[index], "kpt_shape", name));
    return number && *number == std::floor(*number) ? *number : 0;
  };
  const bool is_pair = shape.IsSequence() && shape.size() == 2;
  const double points = is_pair ? at(0) : 0, numbers = is_pair ? at(1) : 0;
  if (points < 1 || points > 1e4 || (numbers != 2 && numbers != 3))
    user_error("{}:{}: expected kpt_shape as [POINTS, 2] or [POINTS, 3], such as [17, 3]", name,
               shape.Mark().line + 1);
  return static_cast<int64_t>(points * numbers);
}

/// True if the first .txt file in a folder has YOLO label lines. A classes.txt alone does not show this,
/// because folders of masks may have one too.
bool has_label_lines(const fs::path& folder) {
  for (const fs::path& file : sorted_files(folder, ".txt")) {
    if (file.filename() == "classes.txt") continue;
    const MappedFile mapped(file);
    std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    const std::vector<std::string_view> words = words_of(take_line(text));
    if (words.size() >= 5)
      return std::ranges::all_of(words, [](auto word) { return parse_number(word).has_value(); });
  }
  return false;
}

/// Reads a folder of images with a classes.txt, as LabelImg and Label Studio write it. Subfolders train/ and
/// valid/ of the folder or of its images/ are splits.
BoxedImages read_class_list(const fs::path& index, std::string_view split, const LabelOptions& options) {
  fs::path root = index.parent_path();
  if (root.filename() == "labels") root = root.parent_path();
  DataFolder folder(root, options.allow_outside);
  const std::vector<std::string> names = parse_class_names(read_file(index, kMaxTextBytes), index.string());
  const fs::path images = fs::is_directory(root / "images") ? root / "images" : root;
  const auto images_of = [&](std::string_view which) {
    std::vector<fs::path> files;
    for (const std::string_view name : split_names(which)) {
      for (const fs::path& at : {images / name, root / name})
        if (files.empty() && fs::is_directory(at)) add_images(at, folder, files);
    }
    return files;
  };
  const std::vector<fs::path> train = images_of("train");
  const std::vector<fs::path> held_out = images_of("test");
  const bool has_splits = !train.empty() && !held_out.empty();
  std::vector<fs::path> files = split == "train" ? train : held_out;
  if (!has_splits) {
    files.clear();
    add_images(images, folder, files);
  }
  if (files.empty()) user_error("{}: expected images in {}, found none", index.string(), images.string());
  BoxedImages set = list_images(names, std::move(files));
  read_labels(set, index, {.num_classes = std::ssize(names), .keep_outlines = options.keep_outlines},
              options);
  if (!has_splits) keep_split(split, root, set);
  return set;
}

}  // namespace

YoloIndex parse_yolo_index(const std::string& text, const std::string& name) {
  const YAML::Node root = parse_yaml(text, name, kIndex);
  if (!root.IsMap()) user_error("{}:1: expected keys like 'train:' and 'names:'", name);
  YoloIndex index;
  const YAML::Node path = root["path"], names = root["names"], count = root["nc"];
  if (path.IsDefined() && !path.IsNull()) index.root = scalar_of(path, "path", name);
  const auto sources_of = [&](std::string_view split) {
    for (const std::string_view key : split_names(split))
      if (auto paths = paths_of(root[std::string(key)], key, name); !paths.empty()) return paths;
    return std::vector<std::string>();
  };
  index.train = sources_of("train");
  index.held_out = sources_of("test");
  if (!names.IsDefined() || (!names.IsSequence() && !names.IsMap()) || names.size() == 0)
    user_error("{}:{}: expected the classes' names, as 'names: [cat, dog]'", name,
               names.IsDefined() ? names.Mark().line + 1 : 1);
  index.class_names = names_of(names, name);
  index.keypoint_numbers = keypoint_numbers_of(root["kpt_shape"], name);
  if (count.IsDefined()) {
    const auto number = parse_number(scalar_of(count, "nc", name));
    if (!number || *number != static_cast<double>(index.class_names.size()))
      user_error("{}:{}: expected nc: {}, the number of names, got '{}'", name, count.Mark().line + 1,
                 index.class_names.size(), shortened(count.Scalar(), 60));
  }
  return index;
}

std::vector<std::string> parse_class_names(std::string_view text, std::string_view name) {
  std::vector<std::string> names;
  for (std::string_view rest = without_bom(text); !rest.empty();) {
    const std::string_view line = trimmed(take_line(rest));
    if (!line.empty()) {
      names.emplace_back(line);
    } else if (!trimmed(rest).empty()) {
      user_error("{}:{}: expected the name of class {}, got an empty line", name, names.size() + 1,
                 names.size());
    }
  }
  if (names.empty()) user_error("{}: expected the name of a class on each line, found none", name);
  return names;
}

void parse_yolo(std::string_view text, std::string_view name, YoloLines& lines, BoxedImage& image,
                std::vector<std::string>& notes) {
  const auto num_posed = static_cast<size_t>(5 + lines.keypoint_numbers);
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  int64_t line = 0;
  for (std::string_view rest = without_bom(text); !rest.empty();) {
    ++line;
    const std::vector<std::string_view> words = words_of(take_line(rest));
    if (words.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, line);
    const bool is_posed = lines.keypoint_numbers > 0;
    const bool is_box = words.size() == 5 || (is_posed && words.size() == num_posed);
    if (is_posed && !is_box)
      user_error("{}: expected a class, 4 numbers and {} numbers of key points (kpt_shape), got {} columns",
                 where, lines.keypoint_numbers, words.size());
    if (!is_box && (words.size() < 7 || words.size() % 2 == 0))
      user_error("{}: expected a class and 4 numbers, or the points of an outline, got {} columns", where,
                 words.size());
    const int32_t label = class_of(words[0], lines.num_classes, where);
    const std::vector<double> shares =
        shares_of(std::span(words).subspan(1, is_box ? 4 : words.size() - 1), where);
    Outline outline = is_box ? Outline() : outline_of(shares, width, height);
    Box box;
    if (is_box) {
      box = box_of(shares, width, height);
    } else {
      const OutlineExtent extent = extent_of(outline).value();
      box = {.x0 = extent.x0, .y0 = extent.y0, .x1 = extent.x1, .y1 = extent.y1};
    }
    lines.num_keypoints += is_box && words.size() > 5 ? 1 : 0;
    lines.num_outlines += is_box ? 0 : 1;
    box.label = label;
    box.area = (box.x1 - box.x0) * (box.y1 - box.y0);
    add_box(box, where, image, notes, lines.keep_outlines ? &outline : nullptr);
  }
}

std::optional<fs::path> find_yolo(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    const fs::path ending = path.extension();
    const bool fits = ending == ".yaml" || ending == ".yml" || path.filename() == "classes.txt";
    return fits ? std::optional(path) : std::nullopt;
  }
  for (const char* name : {"data.yaml", "data.yml", "dataset.yaml"})
    if (path_exists(path / name)) return path / name;
  for (const char* name : {"classes.txt", "labels/classes.txt"}) {
    const bool is_labeled = path_exists(path / name) &&
                            std::ranges::any_of(std::array{"", "labels", "labels/train", "train"},
                                                [&](auto inside) { return has_label_lines(path / inside); });
    if (is_labeled) return path / name;
  }
  return std::nullopt;
}

BoxedImages read_yolo(const fs::path& index, std::string_view split, const LabelOptions& options) {
  if (is_class_list(index)) return read_class_list(index, split, options);
  const YoloIndex yaml = parse_yolo_index(read_file(index, kMaxYamlBytes), index.string());
  DataFolder folder(index, options.allow_outside);
  const auto read = [&](const std::vector<std::string>& sources) {
    std::vector<fs::path> files;
    for (const std::string& source : sources) add_images(resolve(source, index, yaml, folder), folder, files);
    if (files.empty())
      user_error("{}: expected images ({}) in {}, found none", index.string(), kImageFormats, sources[0]);
    BoxedImages set = list_images(yaml.class_names, std::move(files));
    read_labels(set, index,
                {.num_classes = std::ssize(yaml.class_names),
                 .keypoint_numbers = yaml.keypoint_numbers,
                 .keep_outlines = options.keep_outlines},
                options);
    return set;
  };
  if (yaml.train.empty() || yaml.held_out.empty()) {
    const auto& only = yaml.train.empty() ? yaml.held_out : yaml.train;
    if (only.empty()) user_error("{}: expected train: and val: with images, found neither", index.string());
    BoxedImages set = read(only);
    keep_split(split, index, set);
    return set;
  }
  return read(split == "train" ? yaml.train : yaml.held_out);
}

}  // namespace hearth::data
