#include <cmath>
#include <cstdlib>

#include "base/error.h"
#include "data/boxes/boxes_format.h"

/// Objects that are accepted have a name and corners that are numbers.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  try {
    const data::VocFile file =
        data::parse_voc({reinterpret_cast<const char*>(data), size}, "fuzz", size % 2 == 1);
    for (const data::VocObject& object : file.objects)
      if (object.name.empty() || !std::isfinite(object.box.x0 + object.box.y1)) std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
