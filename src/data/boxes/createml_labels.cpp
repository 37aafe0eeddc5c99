#include <map>

#include "data/boxes/boxes_format.h"
#include "data/boxes/label_json.h"

namespace hearth::data {
namespace {

/// Parser of CreateML: a list of images with annotations, whose coordinates are center and size in pixels.
class CreatemlParser {
 public:
  CreatemlParser(std::string_view text, std::string_view name, bool skip_bad)
      : json_(text, name), skip_bad_(skip_bad) {}

  LabelFile take() {
    json_.read_file([&] {
      if (json_.peek() != '[') json_.refuse("a JSON list of CreateML's images");
      json_.read_list("image", [&] { read_image(); });
    });
    return std::move(file_);
  }

 private:
  void read_image() {
    LabeledImage image{.where = json_.where()};
    json_.read_record(
        skip_bad_ ? &image.fault : nullptr, [&] { read_members(image, true); },
        [&] { read_members(image, false); });
    if (!image.fault.empty()) image.objects.clear();
    file_.images.push_back(std::move(image));
  }

  void read_members(LabeledImage& image, bool with_objects) {
    json_.read_object([&](const std::string& key) {
      if (key == "image" || key == "imagefilename" || key == "imageURL") {
        image.file = json_.read_text(key);
      } else if (with_objects && (key == "annotations" || key == "annotation")) {
        json_.read_inner_list(key, [&] { image.objects.push_back(read_object()); });
      } else {
        json_.skip();
      }
    });
    if (image.file.empty()) json_.refuse("an image with its name under \"image\"");
  }

  LabeledObject read_object() {
    LabeledObject object{.where = json_.where()};
    std::map<std::string, double> numbers;
    json_.read_object([&](const std::string& key) {
      if (key == "label") {
        object.name = json_.read_text(key);
      } else if (key == "coordinates") {
        json_.read_object([&](const std::string& name) {
          json_.at_number() ? void(numbers[name] = json_.read_real(name)) : json_.skip();
        });
      } else {
        json_.skip();
      }
    });
    for (const char* key : {"x", "y", "width", "height"})
      if (!numbers.contains(key))
        json_.refuse("an annotation with label and coordinates x, y, width, height");
    if (object.name.empty()) json_.refuse("an annotation with a label");
    const double x = numbers["x"], y = numbers["y"], width = numbers["width"], height = numbers["height"];
    object.box = {.x0 = x - width / 2, .y0 = y - height / 2, .x1 = x + width / 2, .y1 = y + height / 2};
    return object;
  }

  LabelJson json_;
  bool skip_bad_;
  LabelFile file_;
};

}  // namespace

LabelFile parse_createml(std::string_view text, std::string_view name, bool skip_bad) {
  return CreatemlParser(text, name, skip_bad).take();
}

}  // namespace hearth::data
