#include "data/boxes/boxes.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/images/image.h"
#include "data/read_check.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

constexpr std::string_view kLayouts =
    "a data.yaml or classes.txt (YOLO), annotations/*.json (COCO), XML files in Annotations/ or next to the "
    "images (VOC), or files of Label Studio (JSON), CVAT (XML for images), LabelMe, CreateML or CSV";

/// A label format that is stored in single files, and its name for messages.
struct FileFormat {
  BoxFormat format;
  const char* name;
};
constexpr auto kFileFormats = std::to_array<FileFormat>({{BoxFormat::label_studio, "Label Studio"},
                                                         {BoxFormat::cvat, "CVAT"},
                                                         {BoxFormat::labelme, "LabelMe"},
                                                         {BoxFormat::csv, "CSV"},
                                                         {BoxFormat::createml, "CreateML"}});

struct FoundFormat {
  BoxFormat format;
  std::string what;
};

/// Lists the label formats found in a folder or file.
std::vector<FoundFormat> find_formats(const fs::path& path) {
  std::vector<FoundFormat> found;
  for (const auto& [format, name] : kFileFormats) {
    const std::vector<fs::path> files = find_label_files(path, format);
    if (!files.empty()) found.push_back({format, fmt::format("{} ({})", files[0].string(), name)});
  }
  if (const auto index = find_yolo(path))
    found.push_back({BoxFormat::yolo, fmt::format("{} (YOLO)", index->string())});
  // A JSON file that no format above accepts is treated as COCO, so that the COCO reader reports what is
  // wrong.
  const std::vector<fs::path> json = find_coco(path);
  if (!json.empty() && (fs::is_directory(path) || found.empty()))
    found.push_back({BoxFormat::coco, fmt::format("{} (COCO)", json[0].string())});
  if (has_voc(path)) found.push_back({BoxFormat::voc, "XML files (VOC)"});
  return found;
}

BoxFormat detect(const fs::path& path) {
  const std::vector<FoundFormat> found = find_formats(path);
  if (found.empty())
    user_error("expected labels of objects in {}: {}; found none", printable(path.string(), false), kLayouts);
  if (found.size() > 1)
    user_error(
        "expected labels in one format in {}, found {} and {}; set data.kind to the format, or data.path to "
        "the file",
        printable(path.string(), false), found[0].what, found[1].what);
  return found[0].format;
}

BoxedImages read_as(const fs::path& path, std::string_view split, LabelOptions options) {
  if (options.format == BoxFormat::detect) options.format = detect(path);
  switch (options.format) {
    case BoxFormat::coco:
      return read_coco(path, split, options);
    case BoxFormat::voc:
      return read_voc(path, split, options);
    case BoxFormat::yolo: {
      const auto index = find_yolo(path);
      if (!index)
        user_error("expected a data.yaml or classes.txt in {}, found none", printable(path.string(), false));
      return read_yolo(*index, split, options);
    }
    default:
      return read_label_files(path, split, options);
  }
}

void count_boxes(const BoxedImage& image, BoxCheck& check) {
  std::vector<int32_t> labels;
  for (const Box& box : image.boxes) {
    BoxCheck::Class& of = check.classes.at(static_cast<size_t>(box.label));
    ++of.boxes;
    ++(box.area < 32 * 32 ? of.small : box.area < 96 * 96 ? of.medium : of.large);
    of.crowd += box.crowd ? 1 : 0;
    of.difficult += box.difficult ? 1 : 0;
    labels.push_back(box.label);
  }
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  for (const int32_t label : labels) ++check.classes[static_cast<size_t>(label)].images;
  check.images_without_boxes += image.boxes.empty() ? 1 : 0;
}

void check_image(const BoxedImage& image, Exif wanted, BoxCheck& check) {
  if (!image.fault.empty()) throw UserError(image.fault);
  const std::string name = image.file.string();
  const MappedFile file(image.file);
  const ImageHeader header = read_image_header(file.bytes(), name);
  decode_image(file.bytes(), 3, name, Exif::ignore);
  const Exif exif = exif_of(image, header, wanted);
  if (header.orientation != 1) ++(exif == Exif::apply ? check.rotated_upright : check.kept_as_stored);
}

}  // namespace

Exif exif_of(const BoxedImage& image, const ImageHeader& header, Exif wanted) {
  const Extent labeled(image.height, image.width);
  if (wanted == Exif::apply && header.upright() == labeled) return Exif::apply;
  if (header.stored() == labeled) return Exif::ignore;
  const Extent size = header.size(wanted);
  user_error("{}: the image has {}x{} pixels, but its labels are for {}x{}; export the labels again",
             image.file.string(), size.width, size.height, labeled.width, labeled.height);
}

BoxedImages read_boxes(const fs::path& path, std::string_view split, const LabelOptions& options) {
  if (!path_exists(path)) user_error("expected labels at {}, found nothing", printable(path.string(), false));
  split_names(split);  // Throws a UserError if the split is neither "train" nor "test".
  BoxedImages set = read_as(path, split, options);
  set.exif = options.exif;
  if (set.images.empty())
    user_error("expected images for '{}' in {}, found none", split, printable(path.string(), false));
  const auto empty =
      std::ranges::count_if(set.images, [](const auto& p) { return p.boxes.empty() && p.fault.empty(); });
  if (empty > 0)
    set.notes.push_back(
        fmt::format("{}: {} of {} images have no boxes; they are used as images without objects",
                    path.string(), empty, set.images.size()));
  return set;
}

bool has_boxes(const fs::path& path) { return !find_formats(path).empty(); }

void remove_unreadable(BoxedImages& set, int num_threads) {
  if (set.draw) return;
  const ReadCheck check = check_reading(std::ssize(set.images), num_threads, [&](int64_t index) {
    BoxCheck ignored;
    check_image(set.images[static_cast<size_t>(index)], set.exif, ignored);
  });
  if (check.faults.empty()) return;
  set.notes.insert(set.notes.begin(), describe_skipped(check, "images with boxes"));
  std::vector<BoxedImage> kept;
  for (const int64_t index : check.readable)
    kept.push_back(std::move(set.images[static_cast<size_t>(index)]));
  set.images = std::move(kept);
}

BoxCheck check_boxes(const BoxedImages& set) {
  BoxCheck check;
  check.classes.resize(set.class_names.size());
  for (const BoxedImage& image : set.images) {
    count_boxes(image, check);
    if (set.draw) continue;
    try {
      check_image(image, set.exif, check);
    } catch (const UserError& fault) {
      check.faults.emplace_back(fault.what());
    }
  }
  return check;
}

}  // namespace hearth::data
