#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/captions/image_files.h"
#include "data/data_folder.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

std::string_view ending_of(BoxFormat format) {
  return format == BoxFormat::cvat ? ".xml" : format == BoxFormat::csv ? ".csv" : ".json";
}

LabelFile parse(BoxFormat format, std::string_view text, std::string_view name, bool skip_bad) {
  switch (format) {
    case BoxFormat::label_studio:
      return parse_label_studio(text, name, skip_bad);
    case BoxFormat::cvat:
      return parse_cvat(text, name, skip_bad);
    case BoxFormat::labelme:
      return parse_labelme(text, name, skip_bad);
    case BoxFormat::csv:
      return parse_box_table(text, name, skip_bad);
    default:
      return parse_createml(text, name, skip_bad);
  }
}

/// A label file and its contents.
struct ReadFile {
  fs::path path;
  LabelFile labels;
};

std::vector<ReadFile> read_files(const std::vector<fs::path>& paths, const LabelOptions& options) {
  std::vector<ReadFile> files;
  for (const fs::path& path : paths) {
    const MappedFile mapped(path);
    const std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
    files.push_back({path, parse(options.format, text, path.string(), options.skip_bad)});
  }
  return files;
}

/// Label files of a split. Files or images belong to a split by the name of the file's folder, by the name of
/// the file if it has many images, or by CVAT's subset.
struct Split {
  std::vector<ReadFile> files;
  std::vector<std::string> class_names;  ///< class names in the files of both splits, sorted
  bool is_given = false;
  std::string fault;  ///< with skip_bad: the first error in the labels of an image
};

bool is_of(const fs::path& file, std::string_view split, BoxFormat format) {
  const bool is_named = format != BoxFormat::labelme && contains_split_name(file.stem().string(), split);
  return is_named || lowered(file.parent_path().filename().string()) == split;
}

/// Returns the label files whose name matches a split, and from the other files the images whose subset
/// matches it; empty if nothing matches.
std::vector<ReadFile> take_split(const std::vector<ReadFile>& files, std::string_view split,
                                 BoxFormat format) {
  for (const std::string_view name : split_names(split)) {
    std::vector<ReadFile> taken;
    for (const ReadFile& file : files) {
      if (files.size() > 1 && is_of(file.path, name, format)) {
        taken.push_back(file);
        continue;
      }
      ReadFile part{file.path, {.left_out = file.labels.left_out}};
      for (const LabeledImage& image : file.labels.images)
        if (contains_split_name(image.subset, name)) part.labels.images.push_back(image);
      if (!part.labels.images.empty()) taken.push_back(std::move(part));
    }
    if (!taken.empty()) return taken;
  }
  return {};
}

Split read_split(const fs::path& path, std::string_view split, const LabelOptions& options) {
  const BoxFormat format = options.format;
  const std::vector<fs::path> paths = find_label_files(path, format);
  if (paths.empty())
    user_error("expected label files ({}) of the format set by data.kind in {}, found none",
               ending_of(format), printable(path.string(), false));
  Split made;
  std::vector<ReadFile> all = read_files(paths, options);
  std::vector<ReadFile> train = take_split(all, "train", format);
  std::vector<ReadFile> held_out = take_split(all, "test", format);
  made.is_given = !train.empty() && !held_out.empty();
  std::set<std::string> names;
  for (const auto* files : made.is_given ? std::vector{&train, &held_out} : std::vector{&all})
    for (const ReadFile& file : *files)
      for (const LabeledImage& image : file.labels.images) {
        for (const LabeledObject& object : image.objects) names.insert(object.name);
        if (made.fault.empty()) made.fault = image.fault;
      }
  made.class_names = {names.begin(), names.end()};
  made.files = std::move(made.is_given ? (split == "train" ? train : held_out) : all);
  return made;
}

void add_labeled_objects(LabeledImage& image, bool keep_outlines, BoxedImage& boxed, BoxedImages& set) {
  for (LabeledObject& object : image.objects) {
    Box box = object.box;
    check_corners(box, object.where);
    box.label = static_cast<int32_t>(std::ranges::lower_bound(set.class_names, object.name) -
                                     set.class_names.begin());
    box.area = (box.x1 - box.x0) * (box.y1 - box.y0);
    add_box(box, object.where, boxed, set.notes, keep_outlines ? &object.outline : nullptr);
  }
}

/// Finds the file of a labeled image. CVAT images may be in a folder with the subset's name; a LabelMe image
/// may have the name of its label file.
std::optional<fs::path> find_image(const LabeledImage& image, const fs::path& label_file, BoxFormat format,
                                   ImageFinder& finder) {
  if (!image.file.empty()) {
    if (auto found = finder.find(image.file, image.where)) return found;
  }
  if (!image.subset.empty()) {
    if (auto found = finder.find(image.subset + "/" + image.file, image.where)) return found;
  }
  if (format != BoxFormat::labelme) return std::nullopt;
  for (const char* ending : {".jpg", ".jpeg", ".png", ".JPG", ".webp", ".bmp", ".tif", ".tiff"}) {
    if (auto found = finder.find(label_file.stem().string() + ending, label_file.string())) return found;
  }
  return std::nullopt;
}

void add_file(ReadFile& file, DataFolder& folder, const LabelOptions& options, BoxedImages& set) {
  ImageFinder finder(folder, image_roots(file.path));
  for (LabeledImage& image : file.labels.images) {
    const auto found = find_image(image, file.path, options.format, finder);
    if (!found) {
      set.notes.push_back(image.fault.empty() || !image.file.empty()
                              ? fmt::format("{}: skipped, there is no image {}",
                                            image.where.empty() ? file.path.string() : image.where,
                                            shortened(image.file, 200))
                              : describe_skipped_labels(image.fault));
      continue;
    }
    BoxedImage boxed{.file = *found, .width = image.width, .height = image.height, .fault = image.fault};
    read_or_keep_fault(boxed, set.notes, options.skip_bad, [&] {
      if (image.width == 0 || image.height == 0) measure(boxed, options.exif);
      add_labeled_objects(image, options.keep_outlines, boxed, set);
    });
    set.images.push_back(std::move(boxed));
  }
}

void note_left_out(const std::vector<ReadFile>& files, const fs::path& path,
                   std::vector<std::string>& notes) {
  std::map<std::string, int64_t> kinds;
  for (const ReadFile& file : files)
    for (const auto& [kind, count] : file.labels.left_out) kinds[kind] += count;
  for (const auto& [kind, count] : kinds)
    notes.push_back(fmt::format("{}: skipped {} labels of the kind '{}'", path.string(), count, kind));
}

/// Adds a note for each folder of labeled images that also has images without labels. `set` has the images of
/// both splits, because both may be in one folder.
void note_images_without_labels(const BoxedImages& set, std::vector<std::string>& notes) {
  std::set<fs::path> used, folders;
  for (const BoxedImage& boxed : set.images) {
    used.insert(boxed.file);
    folders.insert(boxed.file.parent_path());
  }
  for (const fs::path& folder : folders) {
    std::vector<fs::path> unused = sorted_images(folder);
    std::erase_if(unused, [&](const fs::path& file) { return used.contains(file.lexically_normal()); });
    if (unused.empty()) continue;
    notes.push_back(fmt::format("{}: skipped {} images without labels, such as {}", folder.string(),
                                unused.size(), printable(unused[0].filename().string(), false)));
  }
}

void refuse_repeated(const BoxedImages& set) {
  std::set<fs::path> seen;
  for (const BoxedImage& boxed : set.images)
    if (!seen.insert(boxed.file).second)
      user_error("{}: two records label this image; delete one", boxed.file.string());
}

}  // namespace

bool has_format(const fs::path& file, BoxFormat format) {
  constexpr size_t kMaxBytes = 1 << 16;
  const MappedFile mapped(file);
  std::string_view text(reinterpret_cast<const char*>(mapped.bytes().data()),
                        std::min(mapped.bytes().size(), kMaxBytes));
  text.remove_prefix(std::min(text.find_first_not_of(" \t\r\n\xEF\xBB\xBF"), text.size()));
  const auto has = [&](std::string_view word) { return text.find(word) != text.npos; };
  switch (format) {
    case BoxFormat::label_studio:
      return text.starts_with('[') && (has("\"annotations\"") || has("\"completions\"")) && has("\"data\"");
    case BoxFormat::createml:
      return text.starts_with('[') && has("\"coordinates\"");
    case BoxFormat::labelme:
      return text.starts_with('{') && has("\"shapes\"") && (has("\"shape_type\"") || has("\"imagePath\""));
    case BoxFormat::cvat:
      return text.starts_with('<') && has("<annotations>");
    case BoxFormat::csv:
      text = text.substr(0, text.find('\n'));
      return has("xmin") && has("ymax") && has(",");
    default:
      return false;
  }
}

std::vector<fs::path> find_label_files(const fs::path& path, BoxFormat format) {
  const std::string_view ending = ending_of(format);
  if (!fs::is_directory(path)) {
    const bool fits = path.extension() == ending && has_format(path, format);
    return fits ? std::vector{path} : std::vector<fs::path>();
  }
  std::vector<fs::path> files;
  for (const fs::path& folder : label_folders(path))
    for (fs::path& file : sorted_files(folder, ending))
      if (has_format(file, format)) files.push_back(std::move(file));
  return files;
}

BoxedImages read_label_files(const fs::path& path, std::string_view split, const LabelOptions& options) {
  Split read = read_split(path, split, options);
  if (read.class_names.empty())
    user_error("expected labeled boxes or areas in the files of {}, found none{}",
               printable(path.string(), false), first_fault(read.fault));
  BoxedImages set{.class_names = read.class_names};
  for (size_t i = 1; i <= read.class_names.size(); ++i) set.category_ids.push_back(static_cast<int64_t>(i));
  DataFolder folder(path, options.allow_outside);
  note_left_out(read.files, path, set.notes);
  for (ReadFile& file : read.files) add_file(file, folder, options, set);
  if (set.images.empty())
    user_error("expected the images that the files of {} name, found none ({} is the first)",
               printable(path.string(), false), read.files[0].path.string());
  refuse_repeated(set);
  number_images(set);
  if (!read.is_given) {
    note_images_without_labels(set, set.notes);
    keep_split(split, path, set);
  }
  return set;
}

}  // namespace hearth::data
