#include "data/boxes.h"

#include <algorithm>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/boxes_format.h"
#include "data/image.h"
#include "data/read_check.h"

namespace hearth::data {
namespace {

constexpr std::string_view kLayouts =
    "a data.yaml (YOLO), annotations/*.json (COCO), or XML files in Annotations/ or beside the pictures "
    "(VOC)";

BoxFormat detect(const fs::path& path) {
  const auto index = find_yolo(path);
  const auto json = find_coco(path);
  std::vector<std::string> found;
  BoxFormat format = BoxFormat::detect;
  const auto add = [&](BoxFormat which, std::string what) {
    found.push_back(std::move(what));
    format = which;
  };
  if (index) add(BoxFormat::yolo, fmt::format("{} (YOLO)", index->string()));
  if (!json.empty()) add(BoxFormat::coco, fmt::format("{} (COCO)", json[0].string()));
  if (has_voc(path)) add(BoxFormat::voc, "XML files (VOC)");
  if (found.empty())
    user_error("expected labels of objects in {}: {}; found none", printable(path.string(), false), kLayouts);
  if (found.size() > 1)
    user_error(
        "expected labels in one format in {}, found {} and {}; try naming the format, or the file itself",
        printable(path.string(), false), found[0], found[1]);
  return format;
}

BoxedPictures read_as(BoxFormat format, const fs::path& path, std::string_view split, Exif exif) {
  switch (format) {
    case BoxFormat::coco:
      return read_coco(path, split);
    case BoxFormat::voc:
      return read_voc(path, split, exif);
    case BoxFormat::yolo: {
      const auto index = find_yolo(path);
      if (!index) user_error("expected a data.yaml in {}, found none", printable(path.string(), false));
      return read_yolo(*index, split, exif);
    }
    case BoxFormat::detect:
      break;
  }
  return read_as(detect(path), path, split, exif);
}

void count_boxes(const BoxedPicture& picture, BoxCheck& check) {
  std::vector<int32_t> labels;
  for (const Box& box : picture.boxes) {
    BoxCheck::Class& of = check.classes.at(static_cast<size_t>(box.label));
    ++of.boxes;
    ++(box.area < 32 * 32 ? of.small : box.area < 96 * 96 ? of.medium : of.large);
    of.crowd += box.crowd ? 1 : 0;
    of.difficult += box.difficult ? 1 : 0;
    labels.push_back(box.label);
  }
  std::ranges::sort(labels);
  labels.erase(std::unique(labels.begin(), labels.end()), labels.end());
  for (const int32_t label : labels) ++check.classes[static_cast<size_t>(label)].pictures;
  check.pictures_without_boxes += picture.boxes.empty() ? 1 : 0;
}

void check_picture(const BoxedPicture& picture, Exif wanted, BoxCheck& check) {
  const std::string name = picture.file.string();
  const MappedFile file(picture.file);
  const ImageHeader header = read_image_header(file.bytes(), name);
  decode_image(file.bytes(), 3, name, Exif::ignore);
  const Exif exif = exif_of(picture, header, wanted);
  if (header.orientation != 1) ++(exif == Exif::apply ? check.turned_upright : check.kept_as_stored);
}

}  // namespace

Exif exif_of(const BoxedPicture& picture, const ImageHeader& header, Exif wanted) {
  const Extent labeled(picture.height, picture.width);
  if (wanted == Exif::apply && header.upright() == labeled) return Exif::apply;
  if (header.stored() == labeled) return Exif::ignore;
  const Extent size = header.size(wanted);
  user_error("{}: expected {}x{} pixels, as its labels say, got {}x{}", picture.file.string(), labeled.width,
             labeled.height, size.width, size.height);
}

BoxedPictures read_boxes(const fs::path& path, std::string_view split, BoxFormat format, Exif exif) {
  if (!path_exists(path)) user_error("expected labels at {}, found nothing", printable(path.string(), false));
  BoxedPictures set = read_as(format, path, split, exif);
  set.exif = exif;
  if (set.pictures.empty())
    user_error("expected pictures for '{}' in {}, found none", split, printable(path.string(), false));
  const auto empty = std::ranges::count_if(set.pictures, [](const auto& p) { return p.boxes.empty(); });
  if (empty > 0)
    set.notes.push_back(fmt::format("{}: {} of {} pictures have no boxes and are taken as empty",
                                    path.string(), empty, set.pictures.size()));
  return set;
}

void leave_out_bad(BoxedPictures& set, int num_threads) {
  if (set.draw) return;
  const ReadCheck check = check_reading(std::ssize(set.pictures), num_threads, [&](int64_t index) {
    BoxCheck ignored;
    check_picture(set.pictures[static_cast<size_t>(index)], set.exif, ignored);
  });
  if (check.faults.empty()) return;
  set.notes.push_back(describe_skipped(check, "images with boxes"));
  std::vector<BoxedPicture> kept;
  for (const int64_t index : check.readable)
    kept.push_back(std::move(set.pictures[static_cast<size_t>(index)]));
  set.pictures = std::move(kept);
}

BoxCheck check_boxes(const BoxedPictures& set) {
  BoxCheck check;
  check.classes.resize(set.class_names.size());
  for (const BoxedPicture& picture : set.pictures) {
    count_boxes(picture, check);
    if (set.draw) continue;
    try {
      check_picture(picture, set.exif, check);
    } catch (const UserError& fault) {
      check.faults.emplace_back(fault.what());
    }
  }
  return check;
}

}  // namespace hearth::data
