#include <algorithm>
#include <array>
#include <functional>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/data_folder.h"

namespace hearth::data {
namespace {

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

/// Replaces each image's file_name by its path, and removes images that are not found.
void find_images(const fs::path& json, const fs::path& path, bool allow_outside, BoxedImages& set) {
  DataFolder folder(path, allow_outside);
  const std::vector<fs::path> roots = image_roots(json);
  ImageFinder finder(folder, roots);
  std::vector<BoxedImage> found;
  for (BoxedImage& image : set.images) {
    const std::string name = image.file.string();
    const auto file = finder.find(name, fmt::format("{}: image {}", json.string(), image.id));
    if (!file) {
      set.notes.push_back(fmt::format("{}: skipped image {}, there is no {}", json.string(), image.id,
                                      printable(name, false)));
      continue;
    }
    image.file = *file;
    found.push_back(std::move(image));
  }
  if (found.empty() && !set.images.empty())
    user_error("expected the images of {} in its folder or in {}, found none (the first is {})",
               json.string(), roots[1].string(), printable(set.images[0].file.string(), false));
  set.images = std::move(found);
  if (finder.num_found_by_suffix() > 0)
    set.notes.push_back(fmt::format(
        "{}: {} images are not at the given paths and were found by the last parts of their paths",
        json.string(), finder.num_found_by_suffix()));
}

/// Removes classes without annotations, and adds a note that names them. Keeps all classes if none has
/// annotations.
void leave_out_unused(const fs::path& json, const std::vector<bool>& is_used, BoxedImages& set) {
  const auto num_used = std::ranges::count(is_used, true);
  if (num_used == 0 || num_used == std::ssize(is_used)) return;
  BoxedImages kept;
  std::vector<int32_t> labels;
  std::string names;
  for (size_t i = 0; i < is_used.size(); ++i) {
    labels.push_back(static_cast<int32_t>(kept.class_names.size()));
    if (is_used[i]) {
      kept.class_names.push_back(set.class_names[i]);
      kept.category_ids.push_back(set.category_ids[i]);
    } else {
      names += (names.empty() ? "" : ", ") + set.class_names[i];
    }
  }
  set.class_names = std::move(kept.class_names);
  set.category_ids = std::move(kept.category_ids);
  for (BoxedImage& image : set.images)
    for (Box& box : image.boxes) box.label = labels[static_cast<size_t>(box.label)];
  set.notes.push_back(fmt::format(
      "{}: skipped {} of {} categories, which have no annotations ({}); model.num_classes={} keeps them",
      json.string(), std::ssize(is_used) - num_used, is_used.size(), shortened(names, 200), is_used.size()));
}

/// Checks that the label file of another split, `other`, has the same category ids and names. Sets
/// file.is_used also for the classes that `other` uses.
void merge_classes(const fs::path& json, const fs::path& other, const LabelOptions& options, CocoFile& file) {
  const MappedFile bytes(other);
  const CocoFile theirs = parse_coco_classes(text_of(bytes), other.string(), options);
  if (theirs.labels.class_names != file.labels.class_names ||
      theirs.labels.category_ids != file.labels.category_ids)
    user_error("{}: its categories differ from those of {}; export both with the same ones", json.string(),
               other.string());
  for (size_t i = 0; i < file.is_used.size(); ++i)
    if (theirs.is_used[i]) file.is_used[i] = true;
}

bool is_coco_name(const std::string& name) {
  constexpr std::array kOthers{"captions", "person_keypoints", "panoptic", "stuff", "image_info"};
  return std::ranges::none_of(kOthers, [&](const char* other) { return name.starts_with(other); });
}

/// True if one of COCO's top-level lists begins within the first 64 KiB of the file.
bool looks_like_coco(const fs::path& path) {
  constexpr size_t kMaxBytes = 1 << 16;
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              std::min(file.bytes().size(), kMaxBytes));
  const auto first = text.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == text.npos || text[first] != '{') return false;
  return text.find("\"images\"") != text.npos || text.find("\"annotations\"") != text.npos ||
         text.find("\"categories\"") != text.npos;
}

}  // namespace

std::vector<fs::path> find_coco(const fs::path& path) {
  if (fs::is_regular_file(path)) {
    return path.extension() == ".json" ? std::vector<fs::path>{path} : std::vector<fs::path>{};
  }
  std::vector<fs::path> files;
  for (const fs::path& folder : label_folders(path)) {
    for (fs::path& file : sorted_files(folder, ".json")) {
      if (is_coco_name(file.filename().string()) && looks_like_coco(file)) files.push_back(std::move(file));
    }
  }
  const auto is_instances = [](const fs::path& f) { return f.filename().string().starts_with("instances_"); };
  if (std::ranges::any_of(files, is_instances)) std::erase_if(files, std::not_fn(is_instances));
  return files;
}

BoxedImages read_coco(const fs::path& path, std::string_view split, const LabelOptions& options) {
  const std::vector<fs::path> files = find_coco(path);
  if (files.empty())
    user_error("expected a JSON file of COCO in {} or its annotations/, found none", path.string());
  const auto json = files.size() == 1 ? std::optional(files[0]) : file_of_split(files, split);
  if (!json)
    user_error("expected a JSON file for '{}' in {}, found only {}", split, path.string(), files[0].string());
  CocoFile file;
  {
    const MappedFile bytes(*json);
    file = parse_coco(text_of(bytes), json->string(), options);
  }
  find_images(*json, path, options.allow_outside, file.labels);
  if (files.size() > 1) {
    for (const char* other : {"train", "test"})
      if (const auto found = file_of_split(files, other); found && *found != *json)
        merge_classes(*json, *found, options, file);
  }
  BoxedImages set = std::move(file.labels);
  for (size_t i = 0; i < file.is_used.size(); ++i)
    if (std::ranges::find(options.class_names, set.class_names[i]) != options.class_names.end())
      file.is_used[i] = true;
  const bool keeps_all = options.num_classes >= std::ssize(set.class_names);
  if (!keeps_all) leave_out_unused(*json, file.is_used, set);
  if (files.size() == 1) keep_split(split, *json, set);
  return set;
}

}  // namespace hearth::data
