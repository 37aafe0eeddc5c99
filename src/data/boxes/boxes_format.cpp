#include "data/boxes/boxes_format.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"
#include "base/file.h"
#include "base/text.h"
#include "data/captions/image_files.h"
#include "data/split_names.h"

namespace hearth::data {
namespace {

void check_corner(double corner, std::string_view where) {
  constexpr double kMaxPixels = 1e6;
  if (!(std::fabs(corner) <= kMaxPixels))
    user_error("{}: expected a box in pixels, got a corner at {:g}", where, corner);
}

}  // namespace

void add_box(Box box, std::string_view where, BoxedImage& image, std::vector<std::string>& notes,
             Outline* outline) {
  if (box.x1 <= box.x0 || box.y1 <= box.y0) {
    notes.push_back(fmt::format("{}: skipped a box without area ({:g} {:g} {:g} {:g})", where, box.x0, box.y0,
                                box.x1, box.y1));
    return;
  }
  const auto width = static_cast<double>(image.width), height = static_cast<double>(image.height);
  Box inside = box;
  inside.x0 = std::clamp(box.x0, 0.0, width);
  inside.x1 = std::clamp(box.x1, 0.0, width);
  inside.y0 = std::clamp(box.y0, 0.0, height);
  inside.y1 = std::clamp(box.y1, 0.0, height);
  if (inside.x1 <= inside.x0 || inside.y1 <= inside.y0) {
    notes.push_back(fmt::format("{}: skipped a box ({:g} {:g} {:g} {:g}) outside its image of {}x{}", where,
                                box.x0, box.y0, box.x1, box.y1, image.width, image.height));
    return;
  }
  const double cut =
      std::max({inside.x0 - box.x0, box.x1 - inside.x1, inside.y0 - box.y0, box.y1 - inside.y1});
  if (cut > 1) {
    notes.push_back(fmt::format("{}: clipped a box ({:g} {:g} {:g} {:g}) to its image of {}x{}", where,
                                box.x0, box.y0, box.x1, box.y1, image.width, image.height));
  }
  image.boxes.push_back(inside);
  if (outline == nullptr) return;
  for (const std::vector<double>& polygon : outline->polygons)
    for (const double corner : polygon) check_corner(corner, where);
  image.outlines.push_back(std::move(*outline));
}

void read_or_keep_fault(BoxedImage& image, std::vector<std::string>& notes, bool skip_bad,
                        FunctionRef<void()> read) {
  if (!image.fault.empty()) return;
  const size_t num_notes = notes.size();
  try {
    read();
  } catch (const UserError& error) {
    if (!skip_bad) throw;
    image.fault = error.what();
    image.boxes.clear();
    image.outlines.clear();
    notes.resize(num_notes);
  }
}

std::string describe_skipped_labels(std::string_view fault) {
  return fmt::format("data.bad_records=skip leaves out labels whose image is not known: {}", fault);
}

std::string first_fault(std::string_view fault) {
  return fault.empty() ? "" : fmt::format("; the first fault: {}", fault);
}

void set_polygon(std::vector<double> polygon, LabeledObject& object) {
  object.outline.polygons = {std::move(polygon)};
  const OutlineExtent extent = extent_of(object.outline).value();
  object.box = {.x0 = extent.x0, .y0 = extent.y0, .x1 = extent.x1, .y1 = extent.y1};
}

void check_corners(const Box& box, std::string_view where) {
  for (const double corner : {box.x0, box.y0, box.x1, box.y1}) check_corner(corner, where);
}

std::vector<fs::path> label_folders(const fs::path& path) {
  std::vector<fs::path> folders{path, path / "annotations", path / "labels"};
  for (const char* split : {"train", "test"})
    for (const std::string_view name : split_names(split)) folders.push_back(path / name);
  return folders;
}

std::optional<fs::path> file_of_split(const std::vector<fs::path>& files, std::string_view split) {
  for (const std::string_view name : split_names(split)) {
    std::vector<fs::path> fits;
    for (const fs::path& file : files) {
      if (contains_split_name(file.stem().string(), name) || file.parent_path().filename() == name)
        fits.push_back(file);
    }
    if (fits.size() > 1)
      user_error("expected one file for '{}', found {} and {}; set data.path to the file", split,
                 fits[0].string(), fits[1].string());
    if (fits.size() == 1) return fits[0];
  }
  return std::nullopt;
}

/// Returns the folder of the label file and its parent folder, and in both the subfolders images/,
/// JPEGImages/, data/ and those named by the end of the file name ("instances_val2017.json": val2017/ and
/// images/val2017/).
std::vector<fs::path> image_roots(const fs::path& label_file) {
  const fs::path folder = label_file.parent_path();
  const std::string stem = label_file.stem().string();
  const std::string split = stem.substr(stem.find_last_of('_') + 1);
  std::vector<fs::path> roots;
  for (const fs::path& top : {folder, folder / ".."}) {
    for (const fs::path& inside : {fs::path(), fs::path("images"), fs::path(split),
                                   fs::path("images") / split, fs::path("JPEGImages"), fs::path("data")})
      roots.push_back((top / inside).lexically_normal());
  }
  return roots;
}

void keep_split(std::string_view split, const fs::path& path, BoxedImages& set) {
  set.images = split_every_fifth(std::move(set.images), split);
  set.notes.push_back(fmt::format("{}: has no splits; every fifth image is for tests, {} are for '{}'",
                                  path.string(), set.images.size(), split));
}

void number_images(BoxedImages& set) {
  std::ranges::stable_sort(set.images, {}, [](const BoxedImage& p) { return p.file.native(); });
  for (size_t i = 0; i < set.images.size(); ++i) set.images[i].id = static_cast<int64_t>(i) + 1;
}

void measure(BoxedImage& image, Exif exif) {
  const MappedFile file(image.file);
  const Extent size = read_image_header(file.bytes(), image.file.string()).size(exif);
  image.width = size.width;
  image.height = size.height;
}

std::vector<fs::path> sorted_files(const fs::path& folder, std::string_view ending) {
  std::vector<fs::path> files;
  for (fs::path& path : list_folder(folder)) {
    const std::string name = path.filename().string();
    std::error_code ignored;
    if (name[0] != '.' && name.ends_with(ending) && fs::is_regular_file(path, ignored))
      files.push_back(std::move(path));
  }
  std::ranges::sort(files);
  return files;
}

std::optional<double> parse_number(std::string_view text) {
  text = trimmed(text);
  if (text.starts_with('+')) text.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

}  // namespace hearth::data
