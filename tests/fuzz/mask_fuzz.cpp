#include <cstdlib>
#include <set>

#include "base/error.h"
#include "data/masks.h"

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
  return 0;
}
