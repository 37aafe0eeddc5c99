#include <cstdlib>

#include "base/error.h"
#include "data/boxes/boxes_format.h"

/// Boxes that are accepted are in their image, and runs of outlines fill it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  try {
    const data::BoxedImages set = data::parse_coco({reinterpret_cast<const char*>(data), size}, "fuzz",
                                                   {.keep_outlines = true, .skip_bad = size % 2 == 1})
                                      .labels;
    for (const data::BoxedImage& image : set.images) {
      for (const data::Box& box : image.boxes) {
        const bool inside = box.x0 >= 0 && box.x0 < box.x1 && box.x1 <= static_cast<double>(image.width);
        if (image.outlines.size() != image.boxes.size()) std::abort();
        if (!inside || box.label >= std::ssize(set.class_names)) std::abort();
      }
      for (const data::Outline& outline : image.outlines)
        if (!outline.runs.empty() && !data::fills_bitmap(outline)) std::abort();
    }
  } catch (const UserError&) {
  }
  return 0;
}
