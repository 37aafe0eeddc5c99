#include <cstdlib>

#include "base/error.h"
#include "data/boxes/boxes_format.h"

/// A data.yaml where the first byte is even, else a label file, whose accepted boxes lie in their image.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    if (data[0] % 2 == 0) {
      if (data::parse_yolo_index(text, "fuzz").class_names.empty()) std::abort();
      return 0;
    }
    data::BoxedImage image{.width = 640, .height = 480};
    std::vector<std::string> notes;
    // Every other label file has a key point of three numbers.
    data::YoloLines lines{.num_classes = 3, .keypoint_numbers = data[0] / 2 % 2 * 3, .keep_outlines = true};
    data::parse_yolo(text, "fuzz", lines, image, notes);
    for (const data::Box& box : image.boxes)
      if (!(box.y0 >= 0 && box.y0 < box.y1 && box.y1 <= 480 && box.label < 3)) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
