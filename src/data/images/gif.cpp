#include <gif_lib.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

// Maximum number of pixels per byte of LZW data: a code of 12 bits encodes at most 4096 pixels.
constexpr int64_t kMaxLzwRatio = 4096 * 8 / 12;

/// Reader of the first frame of a GIF file with giflib.
class GifReader {
 public:
  GifReader(std::span<const std::byte> file, std::string_view name) : rest_(file), name_(name) {
    int error = 0;
    gif_.reset(DGifOpen(&rest_, on_read, &error));
    if (gif_ == nullptr) refuse(error);
    while (!find_frame()) {
    }
  }

  /// Height and width of the image in pixels: the GIF's logical screen, enlarged if the frame extends beyond
  /// it.
  int64_t height() const { return std::max<int64_t>(gif_->SHeight, gif_->Image.Top + gif_->Image.Height); }
  int64_t width() const { return std::max<int64_t>(gif_->SWidth, gif_->Image.Left + gif_->Image.Width); }
  /// Palette index of transparent pixels; -1: none.
  int transparent() const { return transparent_; }

  const ColorMapObject& colors() const {
    const ColorMapObject* colors = gif_->Image.ColorMap != nullptr ? gif_->Image.ColorMap : gif_->SColorMap;
    if (colors == nullptr) user_error("{}: the GIF has no palette; save the image as PNG", name_);
    return *colors;
  }

  /// Decodes the frame into a canvas of palette indices.
  void read_rows(Image& indices) {
    const GifImageDesc& frame = gif_->Image;
    const auto read_row = [&](int64_t y) {
      uint8_t* row = &indices.pixels[static_cast<size_t>((frame.Top + y) * indices.width + frame.Left)];
      if (DGifGetLine(gif_.get(), row, frame.Width) == GIF_ERROR) refuse(gif_->Error);
    };
    struct Pass {
      int64_t first, step;
    };
    constexpr Pass kInterlaced[] = {{0, 8}, {4, 8}, {2, 4}, {1, 2}}, kWhole[] = {{0, 1}};
    for (const Pass& pass : frame.Interlace ? std::span<const Pass>(kInterlaced) : kWhole)
      for (int64_t y = pass.first; y < frame.Height; y += pass.step) read_row(y);
  }

 private:
  static int on_read(GifFileType* gif, GifByteType* out, int count) {
    auto& rest = *static_cast<std::span<const std::byte>*>(gif->UserData);
    const size_t size = std::min(static_cast<size_t>(count), rest.size());
    if (size > 0) std::memcpy(out, rest.data(), size);
    rest = rest.subspan(size);
    return static_cast<int>(size);
  }

  [[noreturn]] void refuse(int error) const {
    const char* reason = GifErrorString(error);
    user_error("{}: cannot decode the GIF ({}); replace the file", name_,
               reason == nullptr ? "it is damaged" : reason);
  }
  void demand(int status) const {
    if (status == GIF_ERROR) refuse(gif_->Error);
  }

  /// Reads one GIF record; returns true if it is a frame.
  bool find_frame() {
    GifRecordType type = UNDEFINED_RECORD_TYPE;
    demand(DGifGetRecordType(gif_.get(), &type));
    if (type == IMAGE_DESC_RECORD_TYPE) {
      demand(DGifGetImageDesc(gif_.get()));
      if (gif_->Image.Width < 1 || gif_->Image.Height < 1)
        user_error("{}: the GIF's first frame has no width or height; replace the file", name_);
      return true;
    }
    if (type != EXTENSION_RECORD_TYPE) user_error("{}: the GIF has no frame; replace the file", name_);
    int code = 0;
    GifByteType* data = nullptr;
    demand(DGifGetExtension(gif_.get(), &code, &data));
    while (data != nullptr) {
      GraphicsControlBlock block;
      if (code == GRAPHICS_EXT_FUNC_CODE && DGifExtensionToGCB(data[0], data + 1, &block) == GIF_OK)
        transparent_ = block.TransparentColor;
      demand(DGifGetExtensionNext(gif_.get(), &data));
    }
    return false;
  }

  struct Close {
    void operator()(GifFileType* gif) const { DGifCloseFile(gif, nullptr); }
  };
  std::span<const std::byte> rest_;
  std::string_view name_;
  std::unique_ptr<GifFileType, Close> gif_;
  int transparent_ = -1;
};

/// Converts indices to RGB, or to RGBA if an index is transparent.
void color(const ColorMapObject& colors, int transparent, Image& image) {
  const std::vector<uint8_t> indices = std::move(image.pixels);
  image.channels = transparent < 0 ? 3 : 4;
  image.pixels.resize(indices.size() * static_cast<size_t>(image.channels));
  uint8_t* out = image.pixels.data();
  for (const uint8_t index : indices) {
    const GifColorType one = colors.Colors[index];
    *out++ = one.Red;
    *out++ = one.Green;
    *out++ = one.Blue;
    if (transparent >= 0) *out++ = index == transparent ? 0 : 255;
  }
}

}  // namespace

ImageHeader gif_header(std::span<const std::byte> bytes, std::string_view name) {
  const GifReader reader(bytes, name);
  return {.height = reader.height(), .width = reader.width()};
}

void decode_gif(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image) {
  GifReader reader(bytes, name);
  check_image_size(reader.height(), reader.width(), name);
  check_density(reader.height() * reader.width(), kMaxLzwRatio, bytes.size(), name);
  image.height = reader.height();
  image.width = reader.width();
  image.channels = 1;
  const ColorMapObject& colors = reader.colors();
  image.pixels.assign(static_cast<size_t>(image.height * image.width),
                      static_cast<uint8_t>(std::max(reader.transparent(), 0)));
  reader.read_rows(image);
  if (const int largest = *std::ranges::max_element(image.pixels); largest >= colors.ColorCount)
    user_error("{}: a pixel has color {} of a palette of {} colors; replace the file", name, largest,
               colors.ColorCount);
  if (pixels == Pixels::colors) color(colors, reader.transparent(), image);
}

}  // namespace hearth::data
