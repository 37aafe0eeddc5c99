#include <cstdlib>

#include "base/error.h"
#include "data/boxes/boxes_format.h"

/// The first byte modulo 5 picks the format (Label Studio, CVAT, LabelMe, CSV, CreateML), and from 128 on
/// skip_bad. Objects that are accepted have a name, and runs that fill their bitmap; images with a fault have
/// none.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  constexpr data::LabelFile (*kParsers[])(std::string_view, std::string_view, bool) = {
      data::parse_label_studio, data::parse_cvat, data::parse_labelme, data::parse_box_table,
      data::parse_createml};
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);
  try {
    for (const data::LabeledImage& image : kParsers[data[0] % 5](text, "fuzz", data[0] >= 128).images) {
      if (!image.fault.empty() && !image.objects.empty()) std::abort();
      for (const data::LabeledObject& object : image.objects) {
        if (object.name.empty()) std::abort();
        if (!object.outline.runs.empty() && !data::fills_bitmap(object.outline)) std::abort();
      }
    }
  } catch (const UserError&) {
  }
  return 0;
}
