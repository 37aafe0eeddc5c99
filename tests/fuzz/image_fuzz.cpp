#include <cstdlib>

#include "base/error.h"
#include "data/images/image.h"

/// Any image format by its first bytes: the header has the size of the pixels, and both kinds of pixels have
/// it.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hearth;
  constexpr int64_t kMaxPixels = 1 << 20;
  const auto bytes = std::as_bytes(std::span(data, size));
  try {
    const data::ImageHeader header = data::read_image_header(bytes, "fuzz");
    if (header.stored().num_pixels() > kMaxPixels) return 0;
    const data::Image image = data::decode_image(bytes, 3, "fuzz");
    if (image.size() != header.upright() || std::ssize(image.pixels) != image.size().num_pixels() * 3)
      std::abort();
    const data::Image numbers = data::decode_numbers(bytes, "fuzz", Exif::ignore);
    if (numbers.size() != header.stored() ||
        std::ssize(numbers.pixels) != numbers.size().num_pixels() * numbers.channels)
      std::abort();
  } catch (const UserError&) {
  }
  return 0;
}
