#include <algorithm>
#include <array>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_xml.h"

namespace hearth::data {
namespace {

/// Splits a text at each of the characters in `separators`.
std::vector<std::string_view> parts_of(std::string_view text, std::string_view separators) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const size_t end = std::min(text.find_first_of(separators), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

/// Parser of CVAT's XML 1.1 for images: shapes are elements of <image>, with corners as attributes.
class CvatParser : public LabelXml {
 public:
  CvatParser(std::string_view name, bool skip_bad)
      : LabelXml(name, "annotations", "CVAT's labels"), skip_bad_(skip_bad) {}

  LabelFile take(std::string_view text) {
    parse(text);
    return std::move(file_);
  }

 private:
  void start(std::string_view element, const char** attributes) override {
    if (path() == "/annotations/track")
      return refuse("a track of a video is not supported; export as 'CVAT for images 1.1'");
    if (path() == kImage) return start_image(attributes);
    const bool is_in_image =
        path().starts_with(kImage) && path().size() == kImage.size() + 1 + element.size();
    if (is_in_image) read_shape(element, attributes);
  }

  void end(std::string_view) override {
    if (path() != kImage) return;
    LabeledImage& image = file_.images.back();
    if (!image.fault.empty()) image.objects.clear();
    keep_faults(nullptr);
  }

  void start_image(const char** attributes) {
    LabeledImage& image = file_.images.emplace_back();
    if (skip_bad_) keep_faults(&image.fault);
    image.file = attribute(attributes, "name").value_or("");
    image.subset = attribute(attributes, "subset").value_or("");
    image.where = where();
    if (image.file.empty()) return refuse("the <image> has no name; export the labels again");
    image.width = read_side(attribute(attributes, "width").value_or("0"));
    image.height = read_side(attribute(attributes, "height").value_or("0"));
  }

  void read_shape(std::string_view element, const char** attributes) {
    LabeledObject object;
    object.where = where();
    object.name = attribute(attributes, "label").value_or("");
    bool is_read = true;
    if (element == "box") {
      read_box(attributes, object);
    } else if (element == "polygon") {
      is_read = read_polygon(attributes, object);
    } else if (element == "ellipse") {
      const auto [x, y, radius_x, radius_y] = numbers(attributes, {"cx", "cy", "rx", "ry"});
      set_polygon(rotated_ellipse(x, y, radius_x, radius_y, rotation(attributes)), object);
    } else if (element == "mask") {
      is_read = read_mask(attributes, object);
    } else {
      is_read = false;
    }
    if (!file_.images.back().fault.empty()) return;
    if (!is_read) {
      ++file_.left_out[shortened(element, 60)];
    } else if (object.name.empty()) {
      refuse("the shape has no label; add its class");
    } else {
      file_.images.back().objects.push_back(std::move(object));
    }
  }

  double number(const char** attributes, std::string_view name) {
    const auto text = attribute(attributes, name);
    if (!text) refuse(fmt::format("the element has no attribute {}; export the labels again", name));
    return text ? read_number(*text) : 0;
  }
  std::array<double, 4> numbers(const char** attributes, const std::array<std::string_view, 4>& names) {
    std::array<double, 4> values{};
    std::ranges::transform(names, values.begin(), [&](auto name) { return number(attributes, name); });
    return values;
  }
  double rotation(const char** attributes) {
    return read_number(attribute(attributes, "rotation").value_or("0"));
  }

  void read_box(const char** attributes, LabeledObject& object) {
    const auto [x0, y0, x1, y1] = numbers(attributes, {"xtl", "ytl", "xbr", "ybr"});
    const double degrees = rotation(attributes);
    object.box = {.x0 = x0, .y0 = y0, .x1 = x1, .y1 = y1};
    if (degrees != 0)
      set_polygon(rotated_rectangle(x0, y0, x1, y1, degrees, (x0 + x1) / 2, (y0 + y1) / 2), object);
  }

  /// Reads a polygon from the attribute "points". Returns false for fewer than three corners.
  bool read_polygon(const char** attributes, LabeledObject& object) {
    constexpr size_t kMinNumbers = 6;
    std::vector<double> polygon;
    for (const std::string_view part : parts_of(attribute(attributes, "points").value_or(""), ",;"))
      polygon.push_back(read_number(part));
    if (polygon.size() % 2 != 0) refuse("expected points as x,y;x,y");
    if (polygon.size() < kMinNumbers || polygon.size() % 2 != 0) return false;
    set_polygon(std::move(polygon), object);
    return true;
  }

  /// Reads a run-length encoded mask: row-major run lengths of a bitmap in the rectangle left, top, width,
  /// height. Returns false if no pixel is inside the object.
  bool read_mask(const char** attributes, LabeledObject& object) {
    constexpr double kMaxSide = 1 << 20;
    const auto [left, top, width, height] = numbers(attributes, {"left", "top", "width", "height"});
    Outline& outline = object.outline;
    outline.by_columns = false;
    for (const double side : {left, top, width, height})
      if (!(side >= 0 && side <= kMaxSide))
        refuse("expected left, top, width and height of a mask in pixels");
    for (const std::string_view part : parts_of(attribute(attributes, "rle").value_or(""), ",")) {
      const double run = read_number(part);
      if (run < 0 || run > UINT32_MAX) {
        refuse("expected run lengths in rle");
        return true;
      }
      outline.runs.push_back(static_cast<uint32_t>(run));
    }
    outline.left = static_cast<int64_t>(std::clamp(left, 0.0, kMaxSide));
    outline.top = static_cast<int64_t>(std::clamp(top, 0.0, kMaxSide));
    outline.width = static_cast<int64_t>(std::clamp(width, 0.0, kMaxSide));
    outline.height = static_cast<int64_t>(std::clamp(height, 0.0, kMaxSide));
    if (!fills_bitmap(outline)) {
      refuse(
          fmt::format("expected runs in rle that add up to {} x {} pixels", outline.width, outline.height));
      return true;
    }
    const auto extent = extent_of(outline);
    if (!extent) return false;
    object.box = {.x0 = extent->x0, .y0 = extent->y0, .x1 = extent->x1, .y1 = extent->y1};
    return true;
  }

  static constexpr std::string_view kImage = "/annotations/image";

  bool skip_bad_;
  LabelFile file_;
};

}  // namespace

LabelFile parse_cvat(std::string_view text, std::string_view name, bool skip_bad) {
  return CvatParser(name, skip_bad).take(text);
}

}  // namespace hearth::data
