#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/text.h"
#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"
#include "data/images/image.h"

namespace hearth::data {
namespace {

/// Labels of one task (image) by one annotator.
struct TaskAnnotation {
  bool is_cancelled = false, is_truth = false;
  int64_t width = 0, height = 0;
  std::vector<LabeledObject> objects;
  std::map<std::string, int64_t> left_out;
};

/// A region of an annotation; coordinates are percentages of the image's width and height.
struct Region {
  std::string id, type, label;
  size_t num_labels = 0;
  /// Size of the image in pixels; rotation of the image in degrees.
  double width = 0, height = 0, image_rotation = 0;
  std::map<std::string, double> numbers;
  std::vector<double> points;
};

/// Parser of Label Studio's JSON export: a list of tasks, each with annotations.
class LabelStudioParser {
 public:
  LabelStudioParser(std::string_view text, std::string_view name, bool skip_bad)
      : json_(text, name), skip_bad_(skip_bad) {}

  LabelFile take() {
    json_.read_file([&] {
      if (json_.peek() != '[') json_.refuse("a JSON list of Label Studio's tasks");
      json_.read_list("task", [&] { read_task(); });
    });
    return std::move(file_);
  }

 private:
  void read_task() {
    LabeledImage image{.where = json_.where()};
    std::vector<TaskAnnotation> annotations;
    json_.read_record(
        skip_bad_ ? &image.fault : nullptr, [&] { read_members(image, &annotations); },
        [&] { read_members(image, nullptr); });
    if (!image.fault.empty() || choose(annotations, image)) file_.images.push_back(std::move(image));
  }

  /// Reads the members of a task: the name of the image and, unless `annotations` is null, the annotations.
  void read_members(LabeledImage& image, std::vector<TaskAnnotation>* annotations) {
    std::string upload;
    bool is_task = false;
    json_.read_object([&](const std::string& key) {
      if (key == "data") {
        read_data(image);
      } else if (key == "file_upload" && json_.peek() == '"') {
        upload = json_.read_text(key);
      } else if (annotations != nullptr && (key == "annotations" || key == "completions")) {
        is_task = true;
        json_.read_inner_list(key, [&] { annotations->push_back(read_annotation()); });
      } else {
        json_.skip();
      }
    });
    if (image.file.empty()) image.file = upload;
    if (!is_task || image.file.empty())
      json_.refuse("a task with data and annotations, as Label Studio's JSON (not JSON-MIN) has them");
  }

  /// Reads the image's path or URL: the first string with an image extension, under any key.
  void read_data(LabeledImage& image) {
    json_.read_object([&](const std::string& key) {
      if (json_.peek() != '"') return json_.skip();
      std::string text = json_.read_text(key);
      const bool is_image =
          key == "image" || is_image_file(text) || is_image_file(text.substr(0, text.find('?')));
      if (is_image && (image.file.empty() || key == "image")) image.file = std::move(text);
    });
  }

  /// Selects one annotation of a task: the one marked as ground truth, otherwise the first submitted one.
  /// Adds the number of the others to the skipped ones. Returns false if there is no annotation.
  bool choose(std::vector<TaskAnnotation>& annotations, LabeledImage& image) {
    std::erase_if(annotations, [](const TaskAnnotation& one) { return one.is_cancelled; });
    if (annotations.empty()) {
      ++file_.left_out["task without annotations"];
      return false;
    }
    auto chosen = std::ranges::find_if(annotations, &TaskAnnotation::is_truth);
    if (chosen == annotations.end()) chosen = annotations.begin();
    if (annotations.size() > 1) file_.left_out["further annotation of a task"] += std::ssize(annotations) - 1;
    image.width = chosen->width;
    image.height = chosen->height;
    image.objects = std::move(chosen->objects);
    for (const auto& [kind, count] : chosen->left_out) file_.left_out[kind] += count;
    return true;
  }

  TaskAnnotation read_annotation() {
    TaskAnnotation annotation;
    std::vector<Region> regions;
    std::vector<std::string> wheres;
    json_.read_object([&](const std::string& key) {
      if (key == "was_cancelled" || key == "ground_truth") {
        const bool flag = json_.peek() == 'n' ? (json_.skip(), false) : json_.read_flag(key);
        (key == "was_cancelled" ? annotation.is_cancelled : annotation.is_truth) = flag;
      } else if (key == "result") {
        json_.read_inner_list(key, [&] {
          wheres.push_back(json_.where());
          regions.push_back(read_region());
        });
      } else {
        json_.skip();
      }
    });
    // A shape and its label may be two regions with the same id. The labeled region repeats the shape, so the
    // unlabeled one is skipped.
    std::set<std::string> labeled;
    for (const Region& region : regions)
      if (!region.label.empty()) labeled.insert(region.id);
    for (size_t i = 0; i < regions.size(); ++i) {
      if (regions[i].label.empty() && labeled.contains(regions[i].id)) continue;
      add_region(regions[i], wheres[i], annotation);
    }
    return annotation;
  }

  Region read_region() {
    Region region;
    json_.read_object([&](const std::string& key) {
      if (key == "id" && json_.peek() == '"') {
        region.id = json_.read_text(key);
      } else if (key == "type" && json_.peek() == '"') {
        region.type = json_.read_text(key);
      } else if (key == "original_width" && json_.at_number()) {
        region.width = json_.read_real(key);
      } else if (key == "original_height" && json_.at_number()) {
        region.height = json_.read_real(key);
      } else if (key == "image_rotation" && json_.at_number()) {
        region.image_rotation = json_.read_real(key);
      } else if (key == "value" && json_.peek() == '{') {
        read_value(region);
      } else {
        json_.skip();
      }
    });
    return region;
  }

  void read_value(Region& region) {
    json_.read_object([&](const std::string& key) {
      if (json_.at_number()) {
        region.numbers[key] = json_.read_real(key);
      } else if (key == "points" && json_.peek() == '[') {
        json_.read_inner_list(key, [&] {
          const size_t before = region.points.size();
          json_.read_inner_list(key, [&] { region.points.push_back(json_.read_real(key)); });
          if (region.points.size() != before + 2) json_.refuse("points as [x, y]");
        });
      } else if (key.ends_with("labels") && json_.peek() == '[') {
        json_.read_inner_list(key, [&] {
          std::string label = json_.read_text(key);
          if (region.num_labels++ == 0) region.label = std::move(label);
        });
      } else {
        json_.skip();
      }
    });
  }

  void add_region(const Region& region, const std::string& where, TaskAnnotation& annotation) {
    LabeledObject object{.name = region.label, .where = where};
    const bool is_shape = place(region, object);
    if (is_shape &&
        (region.width < 1 || region.height < 1 || region.width > 1 << 20 || region.height > 1 << 20))
      user_error("{}: expected original_width and original_height of a region, in pixels", where);
    if (!is_shape || region.label.empty() || region.image_rotation != 0) {
      const std::string kind = !is_shape                    ? shortened(region.type, 60)
                               : region.image_rotation != 0 ? "region of an image that was turned in the tool"
                                                            : "shape without a label";
      ++annotation.left_out[kind];
      return;
    }
    if (region.num_labels > 1)
      annotation.left_out["further label of an object"] += static_cast<int64_t>(region.num_labels) - 1;
    annotation.width = static_cast<int64_t>(region.width);
    annotation.height = static_cast<int64_t>(region.height);
    annotation.objects.push_back(std::move(object));
  }

  /// Sets the object's box and outline from the region. Returns false if the region has no area in the image.
  static bool place(const Region& region, LabeledObject& object) {
    const double across = region.width / 100, down = region.height / 100;
    if (!region.points.empty()) {
      if (region.points.size() < 6) return false;
      std::vector<double> polygon = region.points;
      for (size_t i = 0; i < polygon.size(); ++i) polygon[i] *= i % 2 == 0 ? across : down;
      set_polygon(std::move(polygon), object);
      return true;
    }
    const auto has = [&](const char* key) { return region.numbers.contains(key); };
    const auto number = [&](const char* key) { return has(key) ? region.numbers.at(key) : 0.0; };
    if (!has("x") || !has("y")) return false;
    const double x = number("x") * across, y = number("y") * down, degrees = number("rotation");
    if (has("radiusX") && has("radiusY")) {
      set_polygon(rotated_ellipse(x, y, number("radiusX") * across, number("radiusY") * down, degrees),
                  object);
      return true;
    }
    if (!has("width") || !has("height")) return false;
    const double x1 = x + number("width") * across, y1 = y + number("height") * down;
    object.box = {.x0 = x, .y0 = y, .x1 = x1, .y1 = y1};
    if (degrees != 0) set_polygon(rotated_rectangle(x, y, x1, y1, degrees, x, y), object);
    return true;
  }

  LabelJson json_;
  bool skip_bad_;
  LabelFile file_;
};

}  // namespace

LabelFile parse_label_studio(std::string_view text, std::string_view name, bool skip_bad) {
  return LabelStudioParser(text, name, skip_bad).take();
}

}  // namespace hearth::data
