#include "tasks/detect/detection_files.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "base/json_reader.h"
#include "data/boxes/boxes_format.h"

namespace hearth::tasks {
namespace {

struct Result {
  int64_t image_id = 0, category_id = 0;
  Detection detection;
};

/// Reads the list, object by object.
class ResultsReader {
 public:
  ResultsReader(std::string_view text, std::string_view name) : json_(text), name_(name) {}

  template <typename Use>
  void read(Use use) {
    try {
      if (json_.peek() != '[') refuse("a list of results");
      json_.read_array([&] {
        ++number_;
        use(read_result());
      });
      json_.expect_end();
    } catch (const JsonFault& fault) {
      user_error("{}: {}", name_, fault.sentence);
    }
  }

  [[noreturn]] void refuse(std::string_view expected) const {
    user_error("{}: expected {} at result {} (byte {})", name_, expected, number_, json_.at() + 1);
  }

 private:
  Result read_result() {
    Result result;
    unsigned seen = 0;
    if (json_.peek() != '{') refuse("an object");
    json_.read_object([&](const std::string& key) {
      if (key == "image_id") {
        result.image_id = read_integer(key);
        seen |= 1;
      } else if (key == "category_id") {
        result.category_id = read_integer(key);
        seen |= 2;
      } else if (key == "bbox") {
        read_bbox(result.detection);
        seen |= 4;
      } else if (key == "score") {
        result.detection.score = read_number(key);
        seen |= 8;
      } else {
        json_.skip();
      }
    });
    if (seen != 15) refuse("image_id, category_id, bbox and score");
    return result;
  }

  void read_bbox(Detection& detection) {
    const std::array places{&detection.x, &detection.y, &detection.width, &detection.height};
    size_t count = 0;
    if (json_.peek() != '[') refuse("four numbers for bbox");
    json_.read_array([&] {
      if (count == places.size()) refuse("four numbers for bbox");
      *places.at(count++) = read_number("bbox");
    });
    if (count != places.size()) refuse("four numbers for bbox");
  }

  double read_number(std::string_view key) {
    const char c = json_.peek();
    if (c != '-' && (c < '0' || c > '9')) refuse(fmt::format("a number for {}", key));
    const auto value = data::parse_number(json_.read_number());
    if (!value) refuse(fmt::format("a number that can be held for {}", key));
    return *value;
  }

  int64_t read_integer(std::string_view key) {
    const double value = read_number(key);
    if (value != std::floor(value) || std::fabs(value) > 9e15) refuse(fmt::format("an integer for {}", key));
    return static_cast<int64_t>(value);
  }

  JsonReader json_;
  std::string_view name_;
  int64_t number_ = 0;
};

}  // namespace

std::string write_coco_results(std::span<const JudgedPicture> pictures,
                               std::span<const int64_t> category_ids) {
  std::string text = "[";
  for (const JudgedPicture& picture : pictures) {
    for (const Detection& found : picture.detections) {
      text += fmt::format(
          "{}\n{{\"image_id\": {}, \"category_id\": {}, \"bbox\": [{}, {}, {}, {}], \"score\": {}}}",
          text.size() == 1 ? "" : ",", picture.id, category_ids[static_cast<size_t>(found.label)], found.x,
          found.y, found.width, found.height, found.score);
    }
  }
  return text + "]\n";
}

std::vector<JudgedPicture> truths_of(const data::BoxedPictures& set) {
  std::vector<JudgedPicture> pictures;
  for (const data::BoxedPicture& picture : set.pictures) {
    pictures.push_back({.id = picture.id});
    for (const data::Box& box : picture.boxes) pictures.back().truths.push_back(truth_of(box));
  }
  return pictures;
}

std::vector<JudgedPicture> read_coco_results(std::string_view text, std::string_view name,
                                             const data::BoxedPictures& set) {
  std::vector<JudgedPicture> pictures = truths_of(set);
  std::unordered_map<int64_t, size_t> picture_of;
  std::unordered_map<int64_t, int32_t> class_of;
  for (size_t i = 0; i < pictures.size(); ++i) picture_of[pictures[i].id] = i;
  for (size_t i = 0; i < set.category_ids.size(); ++i)
    class_of[set.category_ids[i]] = static_cast<int32_t>(i);
  ResultsReader reader(text, name);
  reader.read([&](Result result) {
    const auto picture = picture_of.find(result.image_id);
    if (picture == picture_of.end())
      reader.refuse(fmt::format("an image_id of the set, got {},", result.image_id));
    const auto label = class_of.find(result.category_id);
    if (label == class_of.end())
      reader.refuse(fmt::format("a category_id of the set, got {},", result.category_id));
    result.detection.label = label->second;
    pictures[picture->second].detections.push_back(result.detection);
  });
  return pictures;
}

std::string write_yolo_labels(std::span<const Detection> detections, int64_t width, int64_t height) {
  const auto across = static_cast<double>(width), down = static_cast<double>(height);
  std::string text;
  for (const Detection& found : detections) {
    text += fmt::format("{} {:.6f} {:.6f} {:.6f} {:.6f} {:.6f}\n", found.label,
                        (found.x + found.width / 2) / across, (found.y + found.height / 2) / down,
                        found.width / across, found.height / down, found.score);
  }
  return text;
}

}  // namespace hearth::tasks
