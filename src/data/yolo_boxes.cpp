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
#include "data/boxes_format.h"
#include "data/image.h"

namespace hearth::data {
namespace {

constexpr int64_t kMaxTextBytes = 64 << 20;
constexpr YamlKind kIndex{"data.yaml", "try a file with train:, val: and names: alone"};

std::string scalar_of(const YAML::Node& node, std::string_view key, const std::string& name) {
  if (node.IsScalar()) return node.Scalar();
  user_error("{}:{}: expected text for {}", name, node.Mark().line + 1, key);
}

/// One path or several; none where the key is missing or empty.
std::vector<std::string> paths_of(const YAML::Node& node, std::string_view key, const std::string& name) {
  std::vector<std::string> paths;
  if (!node.IsDefined() || node.IsNull()) return paths;
  if (!node.IsSequence()) return {scalar_of(node, key, name)};
  for (const YAML::Node& each : node) paths.push_back(scalar_of(each, key, name));
  return paths;
}

/// A list, or a map from 0, 1, ... to names.
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

/// Columns of a line.
std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  while (!(line = trimmed(line)).empty()) {
    const size_t end = std::min(line.find_first_of(kBlank), line.size());
    words.push_back(line.substr(0, end));
    line.remove_prefix(end);
  }
  return words;
}

/// Numbers of a line after its class; each is a share of the picture's width or height.
std::vector<double> shares_of(std::span<const std::string_view> words, std::string_view where) {
  // Rounding puts some just outside of the picture.
  constexpr double kBeyond = 0.05;
  std::vector<double> shares;
  for (const std::string_view word : words) {
    const auto value = parse_number(word);
    if (!value) user_error("{}: expected a number, got '{}'", where, shortened(word, 60));
    if (*value < -kBeyond || *value > 1 + kBeyond)
      user_error("{}: expected numbers from 0 to 1 (shares of the picture's width and height), got {:g}",
                 where, *value);
    shares.push_back(*value);
  }
  return shares;
}

/// Center and size, or the points of an outline.
Box box_of(std::span<const double> shares, double width, double height) {
  Box box;
  if (shares.size() == 4) {
    box = {.x0 = shares[0] - shares[2] / 2,
           .y0 = shares[1] - shares[3] / 2,
           .x1 = shares[0] + shares[2] / 2,
           .y1 = shares[1] + shares[3] / 2};
  } else {
    box = {.x0 = shares[0], .y0 = shares[1], .x1 = shares[0], .y1 = shares[1]};
    for (size_t i = 2; i < shares.size(); i += 2) {
      box.x0 = std::min(box.x0, shares[i]);
      box.x1 = std::max(box.x1, shares[i]);
      box.y0 = std::min(box.y0, shares[i + 1]);
      box.y1 = std::max(box.y1, shares[i + 1]);
    }
  }
  box.x0 *= width;
  box.x1 *= width;
  box.y0 *= height;
  box.y1 *= height;
  return box;
}

int32_t class_of(std::string_view word, int64_t num_classes, std::string_view where) {
  const auto value = parse_number(word);
  if (!value || *value != std::floor(*value))
    user_error("{}: expected a class's number, got '{}'", where, shortened(word, 60));
  if (*value < 0 || *value >= static_cast<double>(num_classes))
    user_error("{}: expected a class from 0 to {}, got {:g}", where, num_classes - 1, *value);
  return static_cast<int32_t>(*value);
}

/// A path of data.yaml: below its root, or beside it, where "../" is dropped that some tools write in vain.
fs::path resolve(const std::string& given, const fs::path& index, const YoloIndex& yaml) {
  const fs::path beside = index.parent_path();
  std::string inside = given;
  while (inside.starts_with("../")) inside = inside.substr(3);
  const std::array candidates{beside / yaml.root / given, beside / given, beside / inside};
  for (const fs::path& candidate : candidates)
    if (path_exists(candidate)) return candidate.lexically_normal();
  user_error("{}: expected pictures at {}, found nothing", index.string(), candidates[0].string());
}

/// Pictures below a folder, or those that a .txt lists, by paths from its own folder.
void add_pictures(const fs::path& source, std::vector<fs::path>& files) {
  if (fs::is_directory(source)) {
    std::error_code code;
    for (fs::recursive_directory_iterator at(source, code), end; !code && at != end; at.increment(code))
      if (is_image_file(at->path()) && at->path().filename().string()[0] != '.') files.push_back(at->path());
    if (code) user_error("cannot list the folder {}: {}", source.string(), code.message());
    return;
  }
  const std::string text = read_file(source, kMaxTextBytes);
  int64_t line = 0;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view entry = trimmed(take_line(rest));
    ++line;
    if (entry.empty()) continue;
    const fs::path file = (source.parent_path() / entry).lexically_normal();
    if (!is_image_file(file) || !path_exists(file))
      user_error("{}:{}: expected an image ({}), found none at {}", source.string(), line, kImageFormats,
                 printable(file.string(), false));
    files.push_back(file);
  }
}

/// The last folder images/ of the path is labels/.
fs::path label_file_of(const fs::path& picture) {
  std::vector<fs::path> parts(picture.begin(), picture.end());
  for (size_t i = parts.size(); i-- > 0;) {
    if (parts[i] != "images") continue;
    parts[i] = "labels";
    break;
  }
  fs::path file;
  for (const fs::path& part : parts) file /= part;
  return file.replace_extension(".txt");
}

void note_labels_without_pictures(const std::set<fs::path>& used, std::vector<std::string>& notes) {
  std::set<fs::path> folders;
  for (const fs::path& file : used) folders.insert(file.parent_path());
  for (const fs::path& folder : folders) {
    if (folder.string().find("labels") == std::string::npos) continue;
    for (const fs::path& file : sorted_files(folder, ".txt")) {
      if (used.contains(file) || file.filename() == "classes.txt") continue;
      notes.push_back(fmt::format("{}: left out, it has no picture", printable(file.string(), false)));
    }
  }
}

void read_labels(BoxedPictures& set, const fs::path& index, Exif exif) {
  const auto num_classes = std::ssize(set.class_names);
  std::set<fs::path> used;
  int64_t num_labeled = 0;
  for (BoxedPicture& picture : set.pictures) {
    measure(picture, exif);
    const fs::path file = label_file_of(picture.file);
    if (!used.insert(file).second)
      user_error("expected one picture for the labels {}, found two", printable(file.string(), false));
    if (!path_exists(file)) continue;
    ++num_labeled;
    parse_yolo(read_file(file, kMaxTextBytes), file.string(), num_classes, picture, set.notes);
  }
  if (num_labeled == 0)
    user_error("{}: expected labels of the pictures, such as {}, found none", index.string(),
               label_file_of(set.pictures[0].file).string());
  note_labels_without_pictures(used, set.notes);
}

BoxedPictures list_pictures(const YoloIndex& yaml, const fs::path& index,
                            const std::vector<std::string>& sources) {
  BoxedPictures set{.class_names = yaml.class_names};
  for (size_t i = 0; i < set.class_names.size(); ++i) set.category_ids.push_back(static_cast<int64_t>(i));
  std::vector<fs::path> files;
  for (const std::string& source : sources) add_pictures(resolve(source, index, yaml), files);
  if (files.empty())
    user_error("{}: expected images ({}) in {}, found none", index.string(), kImageFormats, sources[0]);
  std::ranges::sort(files);
  files.erase(std::unique(files.begin(), files.end()), files.end());
  for (fs::path& file : files) set.pictures.push_back({.file = std::move(file)});
  number_pictures(set);
  return set;
}

}  // namespace

YoloIndex parse_yolo_index(const std::string& text, const std::string& name) {
  const YAML::Node root = parse_yaml(text, name, kIndex);
  if (!root.IsMap()) user_error("{}:1: expected keys like 'train:' and 'names:'", name);
  YoloIndex index;
  const YAML::Node path = root["path"], names = root["names"], count = root["nc"];
  if (path.IsDefined() && !path.IsNull()) index.root = scalar_of(path, "path", name);
  index.train = paths_of(root["train"], "train", name);
  index.val = paths_of(root["val"].IsDefined() ? root["val"] : root["valid"], "val", name);
  index.test = paths_of(root["test"], "test", name);
  if (!names.IsDefined() || (!names.IsSequence() && !names.IsMap()) || names.size() == 0)
    user_error("{}:{}: expected the classes' names, as 'names: [cat, dog]'", name,
               names.IsDefined() ? names.Mark().line + 1 : 1);
  index.class_names = names_of(names, name);
  if (count.IsDefined()) {
    const auto number = parse_number(scalar_of(count, "nc", name));
    if (!number || *number != static_cast<double>(index.class_names.size()))
      user_error("{}:{}: expected nc: {}, as there are names, got '{}'", name, count.Mark().line + 1,
                 index.class_names.size(), shortened(count.Scalar(), 60));
  }
  return index;
}

void parse_yolo(std::string_view text, std::string_view name, int64_t num_classes, BoxedPicture& picture,
                std::vector<std::string>& notes) {
  int64_t line = 0;
  while (!text.empty()) {
    ++line;
    const std::vector<std::string_view> words = words_of(take_line(text));
    if (words.empty()) continue;
    const std::string where = fmt::format("{}:{}", name, line);
    if (words.size() != 5 && (words.size() < 7 || words.size() % 2 == 0))
      user_error("{}: expected a class and 4 numbers, or the points of an outline, got {} columns", where,
                 words.size());
    const int32_t label = class_of(words[0], num_classes, where);
    const std::vector<double> shares = shares_of(std::span(words).subspan(1), where);
    Box box = box_of(shares, static_cast<double>(picture.width), static_cast<double>(picture.height));
    box.label = label;
    box.area = (box.x1 - box.x0) * (box.y1 - box.y0);
    add_box(box, where, picture, notes);
  }
}

std::optional<fs::path> find_yolo(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    const fs::path ending = path.extension();
    return ending == ".yaml" || ending == ".yml" ? std::optional(path) : std::nullopt;
  }
  for (const char* name : {"data.yaml", "data.yml", "dataset.yaml"})
    if (path_exists(path / name)) return path / name;
  return std::nullopt;
}

BoxedPictures read_yolo(const fs::path& index, std::string_view split, Exif exif) {
  const YoloIndex yaml = parse_yolo_index(read_file(index, kMaxYamlBytes), index.string());
  std::vector<std::string> names = split_names(split);
  const auto sources_of = [&](std::string_view name) -> const std::vector<std::string>& {
    return name == "train" ? yaml.train : name == "test" ? yaml.test : yaml.val;
  };
  if (yaml.train.empty() || (yaml.val.empty() && yaml.test.empty())) {
    const auto& only = !yaml.train.empty() ? yaml.train : !yaml.val.empty() ? yaml.val : yaml.test;
    if (only.empty()) user_error("{}: expected train: and val: with pictures, found neither", index.string());
    BoxedPictures set = list_pictures(yaml, index, only);
    read_labels(set, index, exif);
    take_share(split, index, set);
    return set;
  }
  const auto name = std::ranges::find_if(names, [&](const auto& each) { return !sources_of(each).empty(); });
  BoxedPictures set = list_pictures(yaml, index, sources_of(*name));
  read_labels(set, index, exif);
  return set;
}

}  // namespace hearth::data
