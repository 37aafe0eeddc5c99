#include <cmath>
#include <cstdlib>
#include <cstring>
#include <set>

#include "base/error.h"
#include "data/masks/fill_outline.h"
#include "data/masks/masks.h"

/// A table of classes has each name once; a PNG of numbers that is accepted has as many as it says.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  try {
    std::set<std::string> names;
    for (const data::MaskClass& one :
         data::parse_class_table({reinterpret_cast<const char*>(data), size}, "fuzz"))
      if (one.name.empty() || !names.insert(one.name).second) std::abort();
  } catch (const UserError&) {
  }
  try {
    const data::Image image = data::decode_numbers(std::as_bytes(std::span(data, size)), "fuzz");
    if (std::ssize(image.pixels) != image.height * image.width * image.channels) std::abort();
  } catch (const UserError&) {
  }
  data::Outline outline;
  std::vector<double>& corners = outline.polygons.emplace_back(size / 16 * 2);
  if (!corners.empty()) std::memcpy(corners.data(), data, corners.size() * sizeof(double));
  for (double& corner : corners) corner = std::isfinite(corner) ? corner : 0;
  data::Image mask{.height = 13, .width = 17, .channels = 1, .pixels = std::vector<uint8_t>(13 * 17)};
  data::fill_outline(outline, 1, mask);
  return 0;
}
