#ifdef HEARTH_AVIF
#include <avif/avif.h>

#include <memory>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

/// Creates a decoder and reads the header.
std::unique_ptr<avifDecoder, void (*)(avifDecoder*)> open(std::span<const std::byte> bytes,
                                                          std::string_view name) {
  std::unique_ptr<avifDecoder, void (*)(avifDecoder*)> decoder(avifDecoderCreate(), avifDecoderDestroy);
  HEARTH_CHECK(decoder != nullptr);
  decoder->maxThreads = 1;
  decoder->ignoreExif = AVIF_TRUE;
  decoder->ignoreXMP = AVIF_TRUE;
  decoder->imageSizeLimit = kMaxImagePixels;
  decoder->imageDimensionLimit = kMaxImageSide;
  // Accepts files of old encoders that violate rules of the format that do not affect pixels.
  decoder->strictFlags = AVIF_STRICT_DISABLED;
  avifResult result =
      avifDecoderSetIOMemory(decoder.get(), reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  if (result == AVIF_RESULT_OK) result = avifDecoderParse(decoder.get());
  if (result != AVIF_RESULT_OK)
    user_error("{}: cannot decode the AVIF ({}); replace the file", name, avifResultToString(result));
  return decoder;
}

/// Converts the AVIF properties irot (counterclockwise rotation) and imir (mirroring, applied after it) to an
/// EXIF orientation.
int orientation_of(const avifImage& image) {
#if AVIF_VERSION >= 1000000
  const int axis = image.imir.axis;
#else
  const int axis = image.imir.mode;
#endif
  const int turns = (image.transformFlags & AVIF_TRANSFORM_IROT) != 0 ? image.irot.angle & 3 : 0;
  const int mirror = (image.transformFlags & AVIF_TRANSFORM_IMIR) == 0 ? 0 : axis == 0 ? 1 : 2;
  constexpr int kOrientation[4][3] = {{1, 4, 2}, {8, 5, 7}, {3, 2, 4}, {6, 7, 5}};
  return kOrientation[turns][mirror];
}

}  // namespace

ImageHeader avif_header(std::span<const std::byte> bytes, std::string_view name) {
  const auto decoder = open(bytes, name);
  return {.height = decoder->image->height,
          .width = decoder->image->width,
          .orientation = orientation_of(*decoder->image)};
}

void decode_avif(std::span<const std::byte> bytes, std::string_view name, Pixels /*pixels*/, Image& image) {
  const auto decoder = open(bytes, name);
  const auto demand = [&](avifResult result) {
    if (result != AVIF_RESULT_OK)
      user_error("{}: cannot decode the AVIF ({}); replace the file", name, avifResultToString(result));
  };
  demand(avifDecoderNextImage(decoder.get()));
  const avifImage& decoded = *decoder->image;
  check_image_size(decoded.height, decoded.width, name);
  image.height = decoded.height;
  image.width = decoded.width;
  image.channels = decoder->alphaPresent != 0 ? 4 : 3;
  image.pixels.resize(static_cast<size_t>(image.height * image.width * image.channels));
  avifRGBImage rgb;
  avifRGBImageSetDefaults(&rgb, &decoded);
  rgb.format = image.channels == 4 ? AVIF_RGB_FORMAT_RGBA : AVIF_RGB_FORMAT_RGB;
  rgb.depth = 8;
  rgb.pixels = image.pixels.data();
  rgb.rowBytes = static_cast<uint32_t>(image.width * image.channels);
  demand(avifImageYUVToRGB(&decoded, &rgb));
}

}  // namespace hearth::data
#endif
