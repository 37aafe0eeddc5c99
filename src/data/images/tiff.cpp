#include <tiffio.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/images/image_formats.h"

namespace hearth::data {
namespace {

/// A file in memory for libtiff's callbacks, and libtiff's error message.
struct TiffSource {
  std::span<const std::byte> file;
  toff_t at = 0;
  char reason[160] = "it is damaged";
};

TiffSource& source_of(thandle_t handle) { return *static_cast<TiffSource*>(handle); }

tsize_t on_read(thandle_t handle, void* out, tsize_t count) {
  TiffSource& source = source_of(handle);
  const size_t at = std::min<size_t>(source.at, source.file.size());
  const size_t size = std::min<size_t>(static_cast<size_t>(count), source.file.size() - at);
  if (size > 0) std::memcpy(out, source.file.data() + at, size);
  source.at = at + size;
  return static_cast<tsize_t>(size);
}
tsize_t on_write(thandle_t, void*, tsize_t) { return 0; }
toff_t on_seek(thandle_t handle, toff_t offset, int from) {
  TiffSource& source = source_of(handle);
  source.at = offset + (from == SEEK_CUR ? source.at : from == SEEK_END ? source.file.size() : 0);
  return source.at;
}
int on_close(thandle_t) { return 0; }
toff_t on_size(thandle_t handle) { return source_of(handle).file.size(); }
int on_map(thandle_t handle, void** base, toff_t* size) {
  *base = const_cast<std::byte*>(source_of(handle).file.data());
  *size = source_of(handle).file.size();
  return 1;
}
void on_unmap(thandle_t, void*, toff_t) {}

void on_error(thandle_t handle, const char*, const char* format, va_list arguments) {
  if (handle == nullptr) return;
  TiffSource& source = source_of(handle);
  std::vsnprintf(source.reason, sizeof source.reason, format, arguments);
}

/// Installs error handlers for libtiff. They are global, so the client handle identifies the file of an
/// error.
void set_handlers() {
  [[maybe_unused]] static const bool once = [] {
    TIFFSetErrorHandler(nullptr);
    TIFFSetWarningHandler(nullptr);
    TIFFSetErrorHandlerExt(on_error);
    return true;
  }();
}

/// Returns the maximum compression ratio of a TIFF compression: bytes of pixels per byte of the file.
int64_t max_ratio(uint16_t compression) {
  switch (compression) {
    case COMPRESSION_NONE:
      return 1;
    case COMPRESSION_PACKBITS:
      return 64;
    case COMPRESSION_LZW:
      return 4096 * 8 / 9;
    case COMPRESSION_DEFLATE:
    case COMPRESSION_ADOBE_DEFLATE:
      return 1032;
    default:
      // CCITT fax codes: a row of up to kMaxImageSide pixels takes at least one bit.
      return kMaxImageSide;
  }
}

/// Reader of the first image of a TIFF file, with the tags that its pixels depend on.
class TiffReader {
 public:
  TiffReader(std::span<const std::byte> file, std::string_view name) : source_{file}, name_(name) {
    set_handlers();
    tiff_.reset(TIFFClientOpen("image", "r", &source_, on_read, on_write, on_seek, on_close, on_size, on_map,
                               on_unmap));
    demand(tiff_ != nullptr);
    uint32_t width = 0, height = 0;
    TIFFGetField(tiff_.get(), TIFFTAG_IMAGEWIDTH, &width);
    TIFFGetField(tiff_.get(), TIFFTAG_IMAGELENGTH, &height);
    width_ = width;
    height_ = height;
    const auto read = [&](ttag_t tag, uint16_t& value) { TIFFGetFieldDefaulted(tiff_.get(), tag, &value); };
    read(TIFFTAG_ORIENTATION, orientation_);
    read(TIFFTAG_BITSPERSAMPLE, bits_);
    read(TIFFTAG_SAMPLESPERPIXEL, samples_);
    read(TIFFTAG_SAMPLEFORMAT, format_);
    read(TIFFTAG_PLANARCONFIG, planar_);
    read(TIFFTAG_COMPRESSION, compression_);
    TIFFGetField(tiff_.get(), TIFFTAG_PHOTOMETRIC, &photometric_);
  }

  ImageHeader header() const {
    const bool known = orientation_ >= 1 && orientation_ <= 8;
    return {.height = height_, .width = width_, .orientation = known ? orientation_ : 1};
  }

  void decode(Pixels pixels, Image& image) {
    check();
    image.height = height_;
    image.width = width_;
    if (!is_plain()) return decode_by_libtiff(image);
    if (photometric_ == PHOTOMETRIC_PALETTE)
      demand(TIFFGetField(tiff_.get(), TIFFTAG_COLORMAP, &map_[0], &map_[1], &map_[2]) == 1);
    const bool has_colors = photometric_ == PHOTOMETRIC_RGB;
    const uint16_t num_read = has_colors ? 3 : 1;
    const bool has_alpha = samples_ > num_read && alpha_kind() != EXTRASAMPLE_UNSPECIFIED;
    image.channels = has_alpha ? num_read + 1 : num_read;
    const bool is_wide = bits_ == 16 && pixels == Pixels::numbers && !has_colors;
    std::vector<uint16_t> numbers;
    if (is_wide) {
      image.channels = 1;
      numbers.resize(static_cast<size_t>(height_ * width_));
    } else {
      image.pixels.resize(static_cast<size_t>(height_ * width_ * image.channels));
    }
    const bool keeps = pixels == Pixels::numbers && !has_colors;
    read_samples(image.channels, [&](size_t at, uint16_t value) {
      if (is_wide) {
        numbers[at] = photometric_ == PHOTOMETRIC_MINISWHITE ? static_cast<uint16_t>(~value) : value;
      } else {
        image.pixels[at] = keeps ? number_of(value) : level_of(value);
      }
    });
    if (is_wide) return narrow(numbers, name_, image);
    if (has_alpha && alpha_kind() == EXTRASAMPLE_ASSOCALPHA) divide_by_alpha(image);
    if (photometric_ == PHOTOMETRIC_PALETTE && !keeps) color(image);
  }

 private:
  void demand(bool good) const {
    if (!good) user_error("{}: cannot decode the TIFF ({}); replace the file", name_, source_.reason);
  }

  void check() const {
    if (width_ < 1 || height_ < 1) user_error("{}: the TIFF has no width or height; replace the file", name_);
    check_image_size(height_, width_, name_);
    if (compression_ == COMPRESSION_OJPEG)
      user_error("{}: compression 6 (the old kind of JPEG) is not supported; save the TIFF with another",
                 name_);
    if (samples_ < 1 || samples_ > 8 || bits_ > 16)
      user_error(
          "{}: {} samples of {} bits per pixel are not supported; save a TIFF of at most 8 samples of 16 "
          "bits",
          name_, samples_, bits_);
    check_density(height_ * ((width_ * samples_ * bits_ + 7) / 8), max_ratio(compression_),
                  source_.file.size(), name_);
    // Tiles are read in full even where they extend beyond the image, so their size is limited separately.
    constexpr int64_t kMaxTilePixels = int64_t{1} << 22;
    uint32_t tile_width = 0, tile_height = 0;
    if (TIFFIsTiled(tiff_.get()) == 0) return;
    TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &tile_width);
    TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &tile_height);
    if (tile_width < 1 || tile_height < 1 || tile_width > kMaxTilePixels / tile_height)
      user_error("{}: tiles of {}x{} pixels are not supported; save the TIFF with tiles of at most {} pixels",
                 name_, tile_width, tile_height, kMaxTilePixels);
  }

  uint16_t alpha_kind() const {
    uint16_t count = 0;
    uint16_t* kinds = nullptr;
    TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_EXTRASAMPLES, &count, &kinds);
    return count == 0 || kinds == nullptr ? EXTRASAMPLE_UNSPECIFIED : kinds[0];
  }

  /// True if samples are gray values, palette indices or RGB, which read_samples() reads exactly; others are
  /// decoded by libtiff.
  bool is_plain() const {
    const bool is_gray = photometric_ == PHOTOMETRIC_MINISBLACK || photometric_ == PHOTOMETRIC_MINISWHITE;
    const bool is_indexed = photometric_ == PHOTOMETRIC_PALETTE && samples_ == 1 && bits_ <= 8;
    const bool is_color = photometric_ == PHOTOMETRIC_RGB && samples_ >= 3 && bits_ >= 8;
    const bool has_bits =
        bits_ == 8 || bits_ == 16 || ((bits_ == 1 || bits_ == 2 || bits_ == 4) && samples_ == 1);
    return (is_gray || is_indexed || is_color) && has_bits && format_ == SAMPLEFORMAT_UINT;
  }

  /// Calls put(index, value) for the first `channels` samples of every pixel.
  template <typename Put>
  void read_samples(int64_t channels, Put&& put) {
    const bool tiled = TIFFIsTiled(tiff_.get()) != 0;
    uint32_t block_width = 0, block_height = 0;
    if (tiled) {
      TIFFGetField(tiff_.get(), TIFFTAG_TILEWIDTH, &block_width);
      TIFFGetField(tiff_.get(), TIFFTAG_TILELENGTH, &block_height);
    } else {
      TIFFGetFieldDefaulted(tiff_.get(), TIFFTAG_ROWSPERSTRIP, &block_height);
      block_width = static_cast<uint32_t>(width_);
      block_height = std::min(block_height, static_cast<uint32_t>(height_));
    }
    demand(block_height > 0);
    const bool separate = planar_ == PLANARCONFIG_SEPARATE && samples_ > 1;
    const int64_t in_block = separate ? 1 : samples_;
    const tsize_t row_bytes = tiled ? TIFFTileRowSize(tiff_.get()) : TIFFScanlineSize(tiff_.get());
    const tsize_t size = tiled ? TIFFTileSize(tiff_.get()) : TIFFStripSize(tiff_.get());
    demand(row_bytes >= (static_cast<int64_t>(block_width) * in_block * bits_ + 7) / 8 &&
           size >= row_bytes * static_cast<int64_t>(block_height));
    block_.resize(static_cast<size_t>(size));
    for (int64_t plane = 0; plane < (separate ? channels : 1); ++plane) {
      for (int64_t top = 0; top < height_; top += block_height) {
        for (int64_t left = 0; left < width_; left += block_width) {
          const int64_t rows = std::min<int64_t>(block_height, height_ - top);
          const int64_t columns = std::min<int64_t>(block_width, width_ - left);
          read_block(tiled, left, top, plane, rows * row_bytes);
          for (int64_t y = 0; y < rows; ++y) {
            const uint8_t* row = block_.data() + y * row_bytes;
            for (int64_t x = 0; x < columns; ++x) {
              const auto pixel = static_cast<size_t>(((top + y) * width_ + left + x) * channels);
              if (separate) {
                put(pixel + static_cast<size_t>(plane), sample(row, x));
              } else {
                for (int64_t c = 0; c < channels; ++c)
                  put(pixel + static_cast<size_t>(c), sample(row, x * in_block + c));
              }
            }
          }
        }
      }
    }
  }

  void read_block(bool tiled, int64_t left, int64_t top, int64_t plane, tsize_t bytes) {
    const auto x = static_cast<uint32_t>(left), y = static_cast<uint32_t>(top);
    const auto number = static_cast<uint16_t>(plane);
    const auto size = static_cast<tsize_t>(block_.size());
    const tsize_t read = tiled
                             ? TIFFReadEncodedTile(tiff_.get(), TIFFComputeTile(tiff_.get(), x, y, 0, number),
                                                   block_.data(), size)
                             : TIFFReadEncodedStrip(tiff_.get(), TIFFComputeStrip(tiff_.get(), y, number),
                                                    block_.data(), size);
    demand(read >= (tiled ? size : bytes));
  }

  uint16_t sample(const uint8_t* row, int64_t index) const {
    if (bits_ == 8) return row[index];
    if (bits_ == 16) {
      uint16_t value = 0;
      std::memcpy(&value, row + 2 * index, 2);
      return value;
    }
    const int64_t bit = index * bits_;
    return static_cast<uint16_t>(row[bit / 8] >> (8 - bits_ - bit % 8) & ((1 << bits_) - 1));
  }

  /// Returns a sample of up to 8 bits as a number, inverted if the file stores black as the maximum.
  uint8_t number_of(uint16_t value) const {
    return static_cast<uint8_t>(photometric_ == PHOTOMETRIC_MINISWHITE ? (1 << bits_) - 1 - value : value);
  }
  /// Scales a sample to 0 to 255, with 0 as black; palette indices are not changed.
  uint8_t level_of(uint16_t value) const {
    if (photometric_ == PHOTOMETRIC_PALETTE) return static_cast<uint8_t>(value);
    const int level = bits_ == 16 ? value >> 8 : value * 255 / ((1 << bits_) - 1);
    return static_cast<uint8_t>(photometric_ == PHOTOMETRIC_MINISWHITE ? 255 - level : level);
  }

  void divide_by_alpha(Image& image) const {
    const auto channels = static_cast<size_t>(image.channels);
    for (size_t i = 0; i < image.pixels.size(); i += channels) {
      const int alpha = image.pixels[i + channels - 1];
      for (size_t c = 0; alpha > 0 && c + 1 < channels; ++c)
        image.pixels[i + c] = static_cast<uint8_t>(std::min(255, image.pixels[i + c] * 255 / alpha));
    }
  }

  void color(Image& image) const {
    const std::vector<uint8_t> indices = std::move(image.pixels);
    // Colors of a palette have 16 bits. Some writers use all of them, others only the lower 8: then no value
    // exceeds 255.
    const auto num_colors = size_t{1} << bits_;
    bool is_wide = false;
    for (const uint16_t* map : map_)
      is_wide = is_wide || std::any_of(map, map + num_colors, [](uint16_t v) { return v > 255; });
    image.channels = 3;
    image.pixels.resize(indices.size() * 3);
    uint8_t* out = image.pixels.data();
    for (const uint8_t index : indices)
      for (const uint16_t* map : map_) *out++ = static_cast<uint8_t>(is_wide ? map[index] >> 8 : map[index]);
  }

  /// Decodes color spaces other than those of is_plain() (YCbCr, CMYK, Lab) to RGB without alpha.
  void decode_by_libtiff(Image& image) {
    char reason[1024] = "";
    TIFFRGBAImage reader;
    if (TIFFRGBAImageOK(tiff_.get(), reason) == 0 || TIFFRGBAImageBegin(&reader, tiff_.get(), 1, reason) == 0)
      user_error("{}: the TIFF's pixels are of an unsupported kind ({}); save it as 8-bit RGB", name_,
                 reason);
    const std::unique_ptr<TIFFRGBAImage, void (*)(TIFFRGBAImage*)> ending(&reader, TIFFRGBAImageEnd);
    // Decodes without rotating: the caller applies the orientation.
    reader.req_orientation = reader.orientation;
    std::vector<uint32_t> raster(static_cast<size_t>(height_ * width_));
    demand(TIFFRGBAImageGet(&reader, raster.data(), static_cast<uint32_t>(width_),
                            static_cast<uint32_t>(height_)) == 1);
    image.channels = 3;
    image.pixels.resize(raster.size() * 3);
    uint8_t* out = image.pixels.data();
    for (const uint32_t pixel : raster) {
      *out++ = static_cast<uint8_t>(TIFFGetR(pixel));
      *out++ = static_cast<uint8_t>(TIFFGetG(pixel));
      *out++ = static_cast<uint8_t>(TIFFGetB(pixel));
    }
  }

  struct Close {
    void operator()(TIFF* tiff) const { TIFFClose(tiff); }
  };
  TiffSource source_;
  std::string_view name_;
  std::unique_ptr<TIFF, Close> tiff_;
  int64_t width_ = 0, height_ = 0;
  uint16_t orientation_ = 1, bits_ = 1, samples_ = 1, format_ = SAMPLEFORMAT_UINT;
  uint16_t planar_ = PLANARCONFIG_CONTIG, compression_ = COMPRESSION_NONE;
  uint16_t photometric_ = PHOTOMETRIC_MINISBLACK;
  uint16_t* map_[3] = {};
  std::vector<uint8_t> block_;
};

}  // namespace

ImageHeader tiff_header(std::span<const std::byte> bytes, std::string_view name) {
  return TiffReader(bytes, name).header();
}

void decode_tiff(std::span<const std::byte> bytes, std::string_view name, Pixels pixels, Image& image) {
  TiffReader(bytes, name).decode(pixels, image);
}

}  // namespace hearth::data
