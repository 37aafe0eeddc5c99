#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"

namespace hearth::data {
namespace {

struct LabelmeShape {
  std::string label;
  std::string type = "polygon";  ///< shape type; files of old LabelMe versions omit it and have polygons only
  std::vector<double> points;    ///< x, y, x, y, ...
};

class LabelmeParser {
 public:
  LabelmeParser(std::string_view text, std::string_view name) : json_(text, name) {}

  LabelFile take() {
    file_.images.emplace_back();
    json_.read_file([&] {
      if (json_.peek() != '{') json_.refuse("a JSON object with shapes and imagePath");
      json_.read_object([&](const std::string& key) { read_member(key); });
    });
    if (!has_shapes_) json_.refuse("a list \"shapes\"");
    return std::move(file_);
  }

 private:
  void read_member(const std::string& key) {
    LabeledImage& image = file_.images.front();
    if (key == "shapes") {
      has_shapes_ = true;
      json_.read_list("shape", [&] { read_shape(); });
    } else if (key == "imagePath" && json_.peek() == '"') {
      image.file = json_.read_text(key);
    } else if (key == "imageWidth" && json_.at_number()) {
      image.width = read_side(key);
    } else if (key == "imageHeight" && json_.at_number()) {
      image.height = read_side(key);
    } else {
      json_.skip();
    }
  }

  int64_t read_side(const std::string& key) {
    const int64_t side = json_.read_integer(key);
    if (!is_image_side(side)) json_.refuse(fmt::format("the side of an image for {}", key));
    return side;
  }

  void read_shape() {
    LabelmeShape shape;
    LabeledObject object{.where = json_.where()};
    json_.read_object([&](const std::string& key) {
      if (key == "label") {
        shape.label = json_.read_text(key);
      } else if (key == "shape_type" && json_.peek() == '"') {
        shape.type = json_.read_text(key);
      } else if (key == "points") {
        read_points(shape.points);
      } else {
        json_.skip();
      }
    });
    if (!place(shape, object)) {
      ++file_.left_out[shape.type == "mask" ? "mask without two corners" : shortened(shape.type, 60)];
      return;
    }
    if (shape.label.empty()) json_.refuse("a shape with a label");
    object.name = std::move(shape.label);
    file_.images.front().objects.push_back(std::move(object));
  }

  void read_points(std::vector<double>& points) {
    json_.read_inner_list("points", [&] {
      const size_t before = points.size();
      json_.read_inner_list("points", [&] { points.push_back(json_.read_real("points")); });
      if (points.size() != before + 2) json_.refuse("points as [x, y]");
    });
  }

  /// Sets the object's box and outline from the shape. Returns false for shapes without area.
  static bool place(const LabelmeShape& shape, LabeledObject& object) {
    const std::vector<double>& points = shape.points;
    if (shape.type == "polygon" || shape.type == "rotation") {
      if (points.size() < 6) return false;
      set_polygon(points, object);
      return true;
    }
    if (points.size() < 4) return false;
    if (shape.type == "circle") {
      const double radius = std::hypot(points[2] - points[0], points[3] - points[1]);
      set_polygon(rotated_ellipse(points[0], points[1], radius, radius, 0), object);
      return true;
    }
    // A shape of type "mask" has a box and an embedded PNG. Only the box is read; its second corner is
    // inclusive.
    const bool is_mask = shape.type == "mask";
    if (!is_mask && shape.type != "rectangle") return false;
    // A rectangle has two opposite corners, or all four in files of some tools. Adds a third corner to two,
    // because a polygon needs at least three; only its bounding box is used.
    std::vector<double> corners = points;
    if (corners.size() == 4) corners = {points[0], points[1], points[2], points[1], points[2], points[3]};
    set_polygon(corners, object);
    object.outline = {};
    object.box.x1 += is_mask ? 1 : 0;
    object.box.y1 += is_mask ? 1 : 0;
    return true;
  }

  LabelJson json_;
  LabelFile file_;
  bool has_shapes_ = false;
};

}  // namespace

LabelFile parse_labelme(std::string_view text, std::string_view name, bool skip_bad) {
  try {
    return LabelmeParser(text, name).take();
  } catch (const UserError& error) {
    if (!skip_bad) throw;
    // A LabelMe file describes one image. Its name is unknown here, but find_image() finds it by the name of
    // the label file.
    return {.images = {{.where = std::string(name), .fault = error.what()}}};
  }
}

}  // namespace hearth::data
