#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tiffio.h>

#include "base/file.h"
#include "data/images/image_formats.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Files that Pillow 13 wrote, in hexadecimal: 5x3 pixels, as colors() or indices() makes them; "Turned" ones
// have orientation 6.
constexpr std::string_view kWebp =
    "524946464e000000574542505650384c410000002f0480000077201048f26718684481403253fe0c331164db9ca424f7"
    "0719c9fc871600e0ce711ca702000053916cbcf7f06b64514a169564112ca2ff51edf7b91300";
constexpr std::string_view kWebpTurned =
    "524946468200000057454250565038580a000000080000000400000200005650384c410000002f0480000077201048f2"
    "6718684481403253fe0c331164db9ca424f70719c9fc871600e0ce711ca702000053916cbcf7f06b64514a169564112c"
    "a2ff51edf7b91300455849461a0000004d4d002a00000008000101120003000000010006000000000000";
constexpr std::string_view kWebpAlpha =
    "5249464656000000574542505650384c4a0000002f0480001077201048f26718684481403253fe0c331164db9ca424f7"
    "07190941b6cd21e64f588787760080fb5c2e97ab1a00004c45b2f1dec3af91452959549245b088fe47b5dfe74e00";
constexpr std::string_view kWebpAnimated =
    "52494646da00000057454250565038580a00000012000000040000020000414e494d06000000000000000000414e4d46"
    "4e000000000000000000040000020000000000025650384c350000002f048000007740906d33ac03d51fe30c23231048"
    "26c99f6b92f9ef410ab07b010c02402250b1a490427029ac306a44ffc3438e7d0100414e4d4658000000000000000000"
    "040000020000000000005650384c3f0000002f048000107760906da4c31a5061dfeb25468620dbe62425b93fc848e6bf"
    "0d33b3000d4073ae790050cc48123407dc7c0763a15661159633a2fff1e3ab360400";
constexpr std::string_view kWebpLossy =
    "524946463e000000574542505650382032000000d001009d012a0500030000c01225a00274ba01f80003b000feda26ff"
    "eef37ed3d7b4f5fd4cfff8ca9f203fe32a7fc5cc0000";
constexpr std::string_view kTiffTurned =
    "49492a003a00000080002043200078c8001e258005a64000f0003207864641e190c85a4b190f0c832429903c19320b46"
    "4641e12cc893b21690100b000001030001000000050000000101030001000000030000000201030003000000c4000000"
    "030103000100000005000000060103000100000002000000110104000100000008000000120103000100000006000000"
    "1501030001000000030000001601030001000000030000001701040001000000320000001c0103000100000001000000"
    "00000000080008000800";
constexpr std::string_view kTiffBits =
    "49492a001000000004a104a1a80080080900000103000100000005000000010103000100000003000000020103000100"
    "000001000000030103000100000004000000060103000100000001000000110104000100000008000000160103000100"
    "0000030000001701040001000000080000001c010300010000000100000000000000";
constexpr std::string_view kTiff16 =
    "49492a000800000009000001040001000000050000000101040001000000030000000201030001000000100000000301"
    "0300010000000100000006010300010000000100000011010400010000007a0000001601040001000000030000001701"
    "0400010000001e0000001c01030001000000010000000000000000000101020203030000020203030000010102020000"
    "0101020203030000";
constexpr std::string_view kBmp =
    "424d660000000000000036000000280000000500000003000000010018000000000030000000c40e0000c40e00000000"
    "0000000000003cc8005ac83278c86496c896b4c8c8001e64003c64325a64647864969664c8000000001e00323c00645a"
    "00967800c800";
constexpr std::string_view kBmpPalette =
    "424d5e0000000000000046000000280000000500000003000000010008000000000018000000c40e0000c40e00000400"
    "0000040000001e140a000000c80000c80000ffffff00000102030000000002030001020000000001020300000000";
constexpr std::string_view kGif =
    "474946383761050003008100000a141ec8000000c800ffffff2c000000000500030000080e0001041030000041810210"
    "160c08003b";
constexpr std::string_view kGifAnimated =
    "474946383961050003008100000a141ec8000000c800ffffff21f90401000002002c000000000500030000080e000104"
    "1030000041810210160c080021f90401000002002c0100000003000300810a141ec8000000c800ffffff080c00070808"
    "1040c00081010202003b";
constexpr std::string_view kAvifTurned =
    "00000020667479706176696600000000617669666d6966316d6961664d413142000000f56d6574610000000000000021"
    "68646c72000000000000000070696374000000000000000000000000000000000e7069746d0000000000010000001e69"
    "6c6f6300000000440000010001000000010000011d000000270000002869696e660000000000010000001a696e666502"
    "0000000001000061763031436f6c6f72000000007469707270000000546970636f000000146973706500000000000000"
    "0500000003000000107069786900000000030808080000000c6176314381000c0000000013636f6c726e636c78000100"
    "0d0006800000000969726f74030000001869706d61000000000000000100010501028304850000002f6d64617412000a"
    "08180864d1010d068432191207f7f6a90082083e400000903f9abfeb21caa88662f5e5c0";

std::string unhex(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2)
    bytes += static_cast<char>(std::stoi(std::string(digits.substr(i, 2)), nullptr, 16));
  return bytes;
}

Image colors() {
  Image image{.height = 3, .width = 5, .channels = 3};
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 5; ++x)
      for (const int value : {x * 50, y * 100, (x + y) * 30})
        image.pixels.push_back(static_cast<uint8_t>(value));
  return image;
}

std::vector<uint8_t> indices() {
  std::vector<uint8_t> made;
  for (int y = 0; y < 3; ++y)
    for (int x = 0; x < 5; ++x) made.push_back(static_cast<uint8_t>((x + 2 * y) % 4));
  return made;
}

std::vector<uint8_t> indices_as_colors() {
  constexpr uint8_t kPalette[4][3] = {{10, 20, 30}, {200, 0, 0}, {0, 200, 0}, {255, 255, 255}};
  std::vector<uint8_t> made;
  for (const uint8_t index : indices())
    made.insert(made.end(), std::begin(kPalette[index]), std::end(kPalette[index]));
  return made;
}

Image decoded(std::string_view file, int channels = 3, Exif exif = Exif::apply) {
  return decode_image(bytes_of(file), channels, "f", exif);
}

TEST(ImageFormats, PixelsAreThoseOfPillow) {
  for (const std::string_view file : {kWebp, kWebpAlpha, kWebpAnimated, kBmp})
    EXPECT_EQ(decoded(unhex(file)).pixels, colors().pixels) << file;
  const Image alpha = decoded(unhex(kWebpAlpha), 0);
  ASSERT_EQ(alpha.channels, 4);
  EXPECT_EQ(alpha.pixels[7], 235);
  for (const std::string_view file : {kBmpPalette, kGif, kGifAnimated})
    EXPECT_EQ(decoded(unhex(file)).pixels, indices_as_colors()) << file;
  const Image transparent = decoded(unhex(kGifAnimated), 0);
  ASSERT_EQ(transparent.channels, 4);
  EXPECT_EQ(transparent.pixels[3], 255);
  EXPECT_EQ(transparent.pixels[2 * 4 + 3], 0);
  for (const uint8_t value : decoded(unhex(kTiffBits), 1).pixels) EXPECT_TRUE(value == 0 || value == 255);
  EXPECT_EQ(decoded(unhex(kTiff16), 1).pixels, indices());
  const Image lossy = decoded(unhex(kWebpLossy));
  EXPECT_NEAR(lossy.pixels[0], 200, 3);
  EXPECT_NEAR(lossy.pixels[1], 100, 3);
}

TEST(ImageFormats, NumbersAreThoseThatAreStored) {
  for (const std::string_view file : {kBmpPalette, kGif, kGifAnimated, kTiff16}) {
    const Image read = decode_numbers(bytes_of(unhex(file)), "f");
    EXPECT_EQ(read.channels, 1);
    EXPECT_EQ(read.pixels, indices()) << file;
  }
  std::vector<uint8_t> bits;
  for (const uint8_t index : indices()) bits.push_back(index > 1 ? 1 : 0);
  EXPECT_EQ(decode_numbers(bytes_of(unhex(kTiffBits)), "f").pixels, bits);
  EXPECT_EQ(decode_numbers(bytes_of(unhex(kWebp)), "f").pixels, colors().pixels);
}

TEST(ImageFormats, WideNumbersFitOrAreRefused) {
  Image image{.height = 1, .width = 3, .channels = 1};
  narrow(std::vector<uint16_t>{0, 3, 255}, "f", image);
  EXPECT_THAT(image.pixels, ElementsAre(0, 3, 255));
  narrow(std::vector<uint16_t>{0, 257, 65535}, "f", image);
  EXPECT_THAT(image.pixels, ElementsAre(0, 1, 255));
  EXPECT_EQ(error_of([&] {
              narrow(std::vector<uint16_t>{0, 1, 300}, "f", image);
            }),
            "f: 16-bit values have to be at most 255, or all multiples of 257, but 300 and 1 occur; save it "
            "with 8 bits");
}

TEST(ImageFormats, OrientationIsAppliedOrIgnored) {
  const std::string jpeg = encode_jpeg(colors());
  std::string png = encode_png(colors());
  const std::string exif(
      "\0\0\0\x1a"
      "eXIfMM\0*\0\0\0\10\0\1\1\x12\0\3\0\0\0\1\0\6\0\0\0\0\0\0",
      34);
  const uint32_t checksum =
      static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(exif.data()) + 4, 30));
  png.insert(33, exif + big_endian(checksum));
  for (const std::string& file : {with_orientation(jpeg, 6), png, unhex(kWebpTurned), unhex(kTiffTurned)}) {
    const ImageHeader header = read_image_header(bytes_of(file), "f");
    EXPECT_EQ(header.orientation, 6);
    EXPECT_EQ(header.stored(), Extent(3, 5));
    EXPECT_EQ(header.size(Exif::apply), Extent(5, 3));
    const Image stored = decoded(file, 3, Exif::ignore), upright = decoded(file);
    EXPECT_EQ(stored.size(), header.stored());
    EXPECT_EQ(upright.size(), header.upright());
    EXPECT_EQ(upright.pixels, orient(stored, 6).pixels);
    ImageBuffers buffers;
    EXPECT_EQ(read_image(bytes_of(file), 3, "f", buffers).pixels, upright.pixels);
    EXPECT_EQ(read_image(bytes_of(file), 3, {10, 6}, "f", buffers).pixels, resize(upright, {10, 6}).pixels);
    EXPECT_EQ(read_image(bytes_of(file), 3, {6, 10}, "f", buffers, Exif::ignore).pixels,
              resize(stored, {6, 10}).pixels);
  }
}

TEST(ImageFormats, AvifWhereItIsBuiltIn) {
  if (!is_image_file("a.avif")) GTEST_SKIP() << "built without libavif";
  const std::string file = unhex(kAvifTurned);
  EXPECT_EQ(read_image_header(bytes_of(file), "f").orientation, 6);
  const Image image = decoded(file);
  EXPECT_EQ(image.size(), Extent(5, 3));
  EXPECT_NEAR(image.pixels[0], 200, 4);
  EXPECT_NEAR(image.pixels[1], 100, 4);
  EXPECT_NEAR(image.pixels[2], 50, 4);
}

/// A file cut short is refused, or what is missing made no pixels.
TEST(ImageFormats, TruncationsChangeNoPixel) {
  for (const std::string_view digits : {kWebp, kWebpTurned, kWebpAlpha, kWebpAnimated, kTiffTurned, kTiffBits,
                                        kTiff16, kBmp, kBmpPalette, kGif, kGifAnimated, kAvifTurned}) {
    if (digits == kAvifTurned && !is_image_file("a.avif")) continue;
    const std::string file = unhex(digits);
    const Image whole = decoded(file);
    for (size_t size = 0; size < file.size(); ++size) {
      Image cut;
      const std::string said = error_of([&] { cut = decoded(file.substr(0, size)); });
      if (said == "no error") {
        EXPECT_EQ(cut.pixels, whole.pixels) << digits.substr(0, 8) << " " << size << " of " << file.size();
      } else {
        EXPECT_TRUE(said.starts_with("f: ")) << said;
      }
    }
  }
}

/// A TIFF whose samples are `values`, in tiles or strips.
struct TiffFile {
  uint16_t photometric = PHOTOMETRIC_RGB, samples = 3, bits = 8, planar = PLANARCONFIG_CONTIG;
  uint16_t compression = COMPRESSION_ADOBE_DEFLATE, extra = 0;
  uint32_t tile = 0;
};
std::string tiff_of(const TiffFile& layout, const std::vector<uint8_t>& values, int64_t height,
                    int64_t width) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "a.tif";
  TIFF* tiff = TIFFOpen(path.c_str(), "wb");
  TIFFSetField(tiff, TIFFTAG_IMAGEWIDTH, static_cast<uint32_t>(width));
  TIFFSetField(tiff, TIFFTAG_IMAGELENGTH, static_cast<uint32_t>(height));
  TIFFSetField(tiff, TIFFTAG_BITSPERSAMPLE, layout.bits);
  TIFFSetField(tiff, TIFFTAG_SAMPLESPERPIXEL, layout.samples);
  TIFFSetField(tiff, TIFFTAG_PHOTOMETRIC, layout.photometric);
  TIFFSetField(tiff, TIFFTAG_PLANARCONFIG, layout.planar);
  TIFFSetField(tiff, TIFFTAG_COMPRESSION, layout.compression);
  if (layout.extra != 0) TIFFSetField(tiff, TIFFTAG_EXTRASAMPLES, 1, &layout.extra);
  if (layout.photometric == PHOTOMETRIC_PALETTE) {
    std::vector<uint16_t> map(256);
    for (size_t i = 0; i < map.size(); ++i) map[i] = static_cast<uint16_t>(i * 257);
    TIFFSetField(tiff, TIFFTAG_COLORMAP, map.data(), map.data(), map.data());
  }
  const bool separate = layout.planar == PLANARCONFIG_SEPARATE;
  const int64_t in_block = separate ? 1 : layout.samples;
  const int64_t side = layout.tile;
  if (side > 0) {
    TIFFSetField(tiff, TIFFTAG_TILEWIDTH, layout.tile);
    TIFFSetField(tiff, TIFFTAG_TILELENGTH, layout.tile);
  } else {
    TIFFSetField(tiff, TIFFTAG_ROWSPERSTRIP, 2U);
  }
  const int64_t block_height = side > 0 ? side : 2, block_width = side > 0 ? side : width;
  for (int64_t plane = 0; plane < (separate ? layout.samples : 1); ++plane) {
    for (int64_t top = 0; top < height; top += block_height) {
      for (int64_t left = 0; left < width; left += block_width) {
        const int64_t rows = side > 0 ? side : std::min(block_height, height - top);
        std::vector<uint8_t> block(static_cast<size_t>(rows * block_width * in_block));
        for (int64_t y = 0; y < std::min(rows, height - top); ++y)
          for (int64_t x = 0; x < std::min(block_width, width - left); ++x)
            for (int64_t c = 0; c < in_block; ++c)
              block[static_cast<size_t>((y * block_width + x) * in_block + c)] =
                  values[static_cast<size_t>(((top + y) * width + left + x) * layout.samples + plane + c)];
        const auto number = static_cast<uint16_t>(plane);
        if (side > 0) {
          TIFFWriteEncodedTile(
              tiff, TIFFComputeTile(tiff, static_cast<uint32_t>(left), static_cast<uint32_t>(top), 0, number),
              block.data(), static_cast<tmsize_t>(block.size()));
        } else {
          TIFFWriteEncodedStrip(tiff, TIFFComputeStrip(tiff, static_cast<uint32_t>(top), number),
                                block.data(), static_cast<tmsize_t>(block.size()));
        }
      }
    }
  }
  TIFFClose(tiff);
  const MappedFile file(path);
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(ImageFormats, TiffsInStripsTilesAndPlanes) {
  const Image image = speckled(37, 21, 3);
  for (const uint32_t tile : {0U, 16U}) {
    for (const uint16_t planar : {PLANARCONFIG_CONTIG, PLANARCONFIG_SEPARATE}) {
      const std::string file = tiff_of({.planar = planar, .tile = tile}, image.pixels, 37, 21);
      EXPECT_EQ(decoded(file, 0).pixels, image.pixels) << tile << " " << planar;
    }
  }
  const Image gray = speckled(37, 21, 1);
  for (const uint16_t photometric : {PHOTOMETRIC_PALETTE, PHOTOMETRIC_MINISBLACK, PHOTOMETRIC_MINISWHITE}) {
    const std::string file = tiff_of({.photometric = photometric, .samples = 1}, gray.pixels, 37, 21);
    const bool inverted = photometric == PHOTOMETRIC_MINISWHITE;
    EXPECT_EQ(decoded(file, 1).pixels[7], inverted ? 255 - gray.pixels[7] : gray.pixels[7]);
    EXPECT_EQ(decode_numbers(bytes_of(file), "f").pixels == gray.pixels, !inverted);
  }
  const TiffFile with_alpha{.samples = 4, .extra = EXTRASAMPLE_ASSOCALPHA};
  EXPECT_THAT(decoded(tiff_of(with_alpha, {50, 20, 0, 100}, 1, 1), 4).pixels, ElementsAre(127, 51, 0, 100));
}

/// Bytes of a number, lowest first.
std::string little(int64_t value, int count) {
  std::string bytes;
  for (int i = 0; i < count; ++i) bytes += static_cast<char>(value >> 8 * i);
  return bytes;
}
/// A BMP with an info header of 40 bytes and a palette of gray values.
std::string bmp_of(int64_t width, int64_t height, int bits, int compression, int64_t num_colors,
                   const std::string& data) {
  std::string palette;
  for (int64_t i = 0; i < num_colors; ++i) palette += std::string(3, static_cast<char>(i * 10)) + '\0';
  return "BM" + std::string(8, '\0') + little(54 + 4 * num_colors, 4) + little(40, 4) + little(width, 4) +
         little(height, 4) + little(1, 2) + little(bits, 2) + little(compression, 4) + std::string(12, '\0') +
         little(num_colors, 4) + std::string(4, '\0') + palette + data;
}

TEST(ImageFormats, BmpsOfEveryKind) {
  // Two pixels of index 2, then 1 and 3 as they are, end of the row; the row above: one of index 1 further
  // on.
  const std::string runs("\2\2\0\3\1\3\1\0\0\0\0\2\1\0\1\1\0\1", 18);
  EXPECT_EQ(decode_numbers(bytes_of(bmp_of(5, 2, 8, 1, 4, runs)), "f").pixels,
            (std::vector<uint8_t>{0, 1, 0, 0, 0, 2, 2, 1, 3, 1}));
  EXPECT_EQ(decode_numbers(bytes_of(bmp_of(5, 1, 4, 2, 4, std::string("\5\x12\0\1", 4))), "f").pixels,
            (std::vector<uint8_t>{1, 2, 1, 2, 1}));
  EXPECT_EQ(
      decode_numbers(bytes_of(bmp_of(3, -2, 1, 0, 2, std::string("\xA0\0\0\0\x40\0\0\0", 8))), "f").pixels,
      (std::vector<uint8_t>{1, 0, 1, 0, 1, 0}));
  EXPECT_THAT(decoded(bmp_of(1, 1, 16, 0, 0, little(0x7C1F, 4))).pixels, ElementsAre(255, 0, 255));
  EXPECT_THAT(decoded(bmp_of(1, 1, 32, 0, 0, little(0x01020304, 4))).pixels, ElementsAre(2, 3, 4));
  const std::string masks = little(0xF800, 4) + little(0x7E0, 4) + little(0x1F, 4);
  std::string fields = bmp_of(1, 1, 16, 3, 0, masks + little(0x07FF, 4));
  fields.replace(10, 4, little(66, 4));
  EXPECT_THAT(decoded(fields).pixels, ElementsAre(0, 255, 255));
  EXPECT_THAT(error_of([&] { decoded(bmp_of(5, 1, 8, 0, 4, std::string(8, '\7'))); }),
              HasSubstr("a pixel has color 7 of a palette of 4 colors"));
  EXPECT_THAT(error_of([&] { decoded(bmp_of(5, 1, 8, 5, 4, "")); }), HasSubstr("with compression 5"));
}

TEST(ImageFormats, SizesAreCheckedBeforeMemoryIsTaken) {
  EXPECT_THAT(error_of([&] { decoded(bmp_of(16384, 4096, 8, 0, 4, "")); }),
              HasSubstr("the BMP ends before its last pixel"));
  EXPECT_THAT(error_of([&] { decoded(bmp_of(16384, 4096, 8, 1, 4, std::string("\0\1", 2))); }),
              HasSubstr("too few for the image size in its header"));
  EXPECT_THAT(error_of([&] { decoded(bmp_of(20000, 2, 8, 0, 4, "")); }), HasSubstr("16384 a side"));
  std::string gif = unhex(kGif);
  gif.replace(6, 4, std::string("\0\x20\0\x20", 4));
  EXPECT_THAT(error_of([&] { decoded(gif); }), HasSubstr("too few for the image size in its header"));
}

TEST(ImageFormats, NamesTellWhichFilesAreImages) {
  for (const char* name : {"a.png", "A.JPG", "a.jpeg", "a.webp", "a.tif", "a.TIFF", "a.bmp", "a.gif"})
    EXPECT_TRUE(is_image_file(name)) << name;
  for (const char* name : {"a", "a.txt", ".png", "a.heic"}) EXPECT_FALSE(is_image_file(name)) << name;
  EXPECT_TRUE(is_unsupported_image_file("a.HEIC"));
  EXPECT_FALSE(is_unsupported_image_file("a.webp"));
  EXPECT_FALSE(is_unsupported_image_file("a.txt"));
}

}  // namespace
}  // namespace hearth::data
