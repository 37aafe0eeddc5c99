#include <webp/decode.h>
#include <webp/demux.h>

#include <memory>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

const uint8_t* as_uint8(std::span<const std::byte> bytes) {
  return reinterpret_cast<const uint8_t*>(bytes.data());
}

WebPBitstreamFeatures features_of(std::span<const std::byte> bytes, std::string_view name) {
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(as_uint8(bytes), bytes.size(), &features) != VP8_STATUS_OK)
    user_error("{}: the WebP's header is damaged; replace the file", name);
  return features;
}

/// Decodes the first frame of an animation and places it on the animation's canvas.
void decode_first_frame(std::span<const std::byte> bytes, std::string_view name, Image& image) {
  WebPAnimDecoderOptions options;
  WebPAnimDecoderOptionsInit(&options);
  options.color_mode = MODE_RGBA;
  const WebPData data{as_uint8(bytes), bytes.size()};
  const std::unique_ptr<WebPAnimDecoder, void (*)(WebPAnimDecoder*)> decoder(
      WebPAnimDecoderNew(&data, &options), WebPAnimDecoderDelete);
  uint8_t* pixels = nullptr;
  int milliseconds = 0;
  if (decoder == nullptr || WebPAnimDecoderGetNext(decoder.get(), &pixels, &milliseconds) == 0)
    user_error("{}: the WebP's first frame is damaged; replace the file", name);
  image.channels = 4;
  image.pixels.assign(pixels, pixels + image.height * image.width * 4);
}

}  // namespace

ImageHeader webp_header(std::span<const std::byte> bytes, std::string_view name) {
  const WebPBitstreamFeatures features = features_of(bytes, name);
  ImageHeader header{.height = features.height, .width = features.width};
  const ByteReader file{bytes};
  for (size_t at = 12; at + 8 <= bytes.size();) {
    const auto length = static_cast<size_t>(file.little(at + 4, 4));
    if (file.holds(at, "EXIF")) header.orientation = exif_orientation(file.part(at + 8, at + 8 + length));
    at += 8 + length + length % 2;
  }
  return header;
}

// There is no check of the compression ratio, because a lossless WebP of one color stores no bits per pixel:
// only the max image size limits memory.
void decode_webp(std::span<const std::byte> bytes, std::string_view name, Pixels /*pixels*/, Image& image) {
  const WebPBitstreamFeatures features = features_of(bytes, name);
  check_image_size(features.height, features.width, name);
  image.height = features.height;
  image.width = features.width;
  if (features.has_animation != 0) return decode_first_frame(bytes, name, image);
  image.channels = features.has_alpha != 0 ? 4 : 3;
  const int64_t row_bytes = image.width * image.channels;
  image.pixels.resize(static_cast<size_t>(image.height * row_bytes));
  const auto decode = image.channels == 4 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(as_uint8(bytes), bytes.size(), image.pixels.data(), image.pixels.size(),
             static_cast<int>(row_bytes)) == nullptr)
    user_error("{}: the WebP's pixels are damaged or incomplete; replace the file", name);
}

}  // namespace hearth::data
