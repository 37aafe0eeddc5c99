#include "data/images/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
// jpeglib.h needs stdio.h before it.
#include <cstdio>

#include <jpeglib.h>

#include <cstdlib>

#include "base/file.h"
#include "files.h"
#include "limited_child.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

using testing::HasSubstr;

Image flat(int64_t side, std::vector<uint8_t> color) {
  Image image{.height = side, .width = side, .channels = std::ssize(color)};
  for (int64_t i = 0; i < side * side; ++i)
    image.pixels.insert(image.pixels.end(), color.begin(), color.end());
  return image;
}

TEST(Image, PngRoundTrip) {
  for (const int64_t channels : {1, 3}) {
    const Image image = speckled(5, 7, channels);
    const Image back = decode_image(bytes_of(encode_png(image)), 0, "f");
    EXPECT_EQ(back.height, 5);
    EXPECT_EQ(back.width, 7);
    EXPECT_EQ(back.pixels, image.pixels);
  }
}

TEST(Image, EveryTruncationIsRefused) {
  const std::string png = encode_png(speckled(9, 9, 3));
  const std::string jpeg = encode_jpeg(speckled(9, 9, 3), false);
  const std::string progressive = encode_jpeg(speckled(9, 9, 3), true);
  for (const std::string& file : {png, jpeg, progressive}) {
    EXPECT_EQ(error_of([&] { decode_image(bytes_of(file), 3, "f"); }), "no error");
    for (size_t size = 0; size < file.size(); ++size) {
      const std::string text =
          error_of([&] { decode_image(bytes_of(std::string_view(file).substr(0, size)), 3, "pic"); });
      EXPECT_THAT(text, testing::MatchesRegex("pic: .*; (replace|convert) .*"))
          << size << " of " << file.size() << ": " << text;
    }
  }
}

TEST(Image, EveryFlippedBitOfAPngIsRefused) {
  const std::string good = encode_png(speckled(4, 4, 3));
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string file = good;
    file[bit / 8] = static_cast<char>(file[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(error_of([&] { decode_image(bytes_of(file), 3, "f"); }), "no error") << bit;
  }
}

TEST(Image, HugeSidesAreRefusedBeforeAllocation) {
  std::string jpeg = encode_jpeg(speckled(8, 8, 3), false);
  const size_t frame = jpeg.find("\xFF\xC0");
  ASSERT_NE(frame, std::string::npos);
  jpeg.replace(frame + 5, 4, "\x7F\xF0\x7F\xF0");
  EXPECT_THAT(error_of([&] { decode_image(bytes_of(jpeg), 3, "f"); }), HasSubstr("at most 16384 a side"));
  EXPECT_THROW(check_image_size(16000, 16000, "f"), UserError);
  EXPECT_NO_THROW(check_image_size(8192, 8192, "f"));
}

/// A chunk that says it has `length` bytes.
std::string png_chunk(uint32_t length, const std::string& type, const std::string& data) {
  const auto crc = crc32(0, reinterpret_cast<const Bytef*>((type + data).data()),
                         static_cast<uInt>(type.size() + data.size()));
  return big_endian(length) + type + data + big_endian(static_cast<uint32_t>(crc));
}

/// The signature and the header of a PNG of so many 8-bit RGBA pixels.
std::string png_head(uint32_t width, uint32_t height) {
  const std::string header = big_endian(width) + big_endian(height) + std::string("\x08\x06\0\0\0", 5);
  return "\x89PNG\r\n\x1A\n" + png_chunk(13, "IHDR", header);
}

/// A JPEG whose header says that it has so many pixels.
std::string jpeg_of_size(bool progressive, const std::string& height_and_width) {
  std::string jpeg = encode_jpeg(speckled(8, 8, 3), progressive);
  jpeg.replace(jpeg.find(progressive ? "\xFF\xC2" : "\xFF\xC0") + 5, 4, height_and_width);
  return jpeg;
}

TEST(Image, TakesMemoryByTheSizeOfItsFile) {
  const auto refused = [](const std::string& file) {
    const std::string text = error_of([&] { decode_image(bytes_of(file), 3, "f"); });
    EXPECT_TRUE(text.starts_with("f: ") && text.ends_with("; replace the file")) << text;
  };
  for (const char* type : {"tEXt", "zTXt", "iTXt", "pCAL", "sPLT", "sCAL", "iCCP", "eXIf", "hIST", "tRNS",
                           "PLTE", "quIx", "IDAT"}) {
    const std::string png = png_head(1, 1) + png_chunk(0x3FFFFFFF, type, "key");
    EXPECT_WITHIN(16 << 20, refused(png)) << type;
  }
  EXPECT_WITHIN(16 << 20, refused(png_head(8192, 8192) + png_chunk(0, "IDAT", "")));
  for (const bool progressive : {false, true}) {
    const std::string jpeg = jpeg_of_size(progressive, "\x20\x00\x20\x00");
    EXPECT_WITHIN(16 << 20, refused(jpeg));
    EXPECT_WITHIN(64 << 20, refused(jpeg_of_size(progressive, "\x07\xFF\x07\xFF")));
  }
  // Large enough a file for its pixels, not for its coefficients.
  const std::string jpeg = jpeg_of_size(true, "\x20\x00\x20\x00");
  const std::string comment = "\xFF\xFE\x40\x02" + std::string(0x4000, 'c');
  EXPECT_WITHIN(64 << 20, refused(jpeg.substr(0, 2) + comment + jpeg.substr(2)));
}

TEST(Image, SkipsWhatMakesNoPixels) {
  const Image image = speckled(5, 7, 3);
  const std::string png = encode_png(image);
  const size_t first = png.find("IDAT") - 4;
  const std::string more = png_chunk(9, "tEXt", std::string("key\0value", 9)) + png_chunk(3, "quIx", "abc");
  EXPECT_EQ(decode_image(bytes_of(png.substr(0, first) + more + png.substr(first)), 3, "f").pixels,
            image.pixels);
}

TEST(Image, JpegColors) {
  const Image red = decode_image(bytes_of(encode_jpeg(flat(8, {200, 30, 40}), true)), 3, "f");
  EXPECT_NEAR(red.pixels[0], 200, 2);
  EXPECT_NEAR(red.pixels[1], 30, 2);
  EXPECT_NEAR(red.pixels[2], 40, 2);
  const Image gray = decode_image(bytes_of(encode_jpeg(flat(8, {90}), false)), 3, "f");
  EXPECT_EQ(gray.pixels.size(), 8U * 8 * 3);
  EXPECT_NEAR(gray.pixels[2], 90, 1);
  // libjpeg marks CMYK as Adobe's, whose inks are stored inverted: light 200, 100, 50 under black 255.
  const Image inks = decode_image(bytes_of(encode_jpeg(flat(8, {200, 100, 50, 255}), false)), 3, "f");
  EXPECT_NEAR(inks.pixels[0], 200, 2);
  EXPECT_NEAR(inks.pixels[1], 100, 2);
  EXPECT_NEAR(inks.pixels[2], 50, 2);
}

TEST(Image, ConvertsAsPilDoes) {
  const Image rgba = flat(1, {100, 150, 200, 7});
  EXPECT_EQ(convert(rgba, 3).pixels, (std::vector<uint8_t>{100, 150, 200}));
  EXPECT_EQ(convert(rgba, 1).pixels, (std::vector<uint8_t>{141}));
  EXPECT_EQ(convert(flat(1, {9, 77}), 4).pixels, (std::vector<uint8_t>{9, 9, 9, 77}));
  EXPECT_EQ(convert(flat(1, {9}), 4).pixels, (std::vector<uint8_t>{9, 9, 9, 255}));
  EXPECT_EQ(convert(flat(1, {255, 255, 255}), 1).pixels, (std::vector<uint8_t>{255}));
}

TEST(Image, ResizesAndEnlarges) {
  const Image two{.height = 1, .width = 2, .channels = 1, .pixels = {0, 100}};
  EXPECT_EQ(resize(two, {1, 4}).pixels, (std::vector<uint8_t>{0, 25, 75, 100}));
  EXPECT_EQ(resize(two, 1).pixels, (std::vector<uint8_t>{50}));
  EXPECT_EQ(enlarge(two, 2).pixels, (std::vector<uint8_t>{0, 0, 100, 100, 0, 0, 100, 100}));
  EXPECT_EQ(resize(flat(37, {5, 6, 7}), 8).pixels, flat(8, {5, 6, 7}).pixels);
}

TEST(Image, OtherFilesAreRefused) {
  EXPECT_THAT(error_of([] { decode_image(bytes_of("no image"), 3, "f"); }),
              HasSubstr("not an image of a supported format"));
  EXPECT_THAT(error_of([] { decode_image({}, 3, "f"); }),
              HasSubstr("the file is empty; replace it with an image"));
}

TEST(Image, JpegsAreDecodedAtAFractionOfTheirSize) {
  Image image{.height = 51, .width = 70, .channels = 3};
  for (int64_t i = 0; i < 51 * 70; ++i)
    for (const int64_t value : {i / 70 * 4, i % 70 * 3, (i / 70 + i % 70) * 2})
      image.pixels.push_back(static_cast<uint8_t>(value));
  const std::string file = encode_jpeg(image);
  const auto sides = [&](Extent least) {
    Image out;
    decode_jpeg(bytes_of(file), "a.jpg", out, least);
    return std::pair(out.height, out.width);
  };
  EXPECT_EQ(sides(kMaxImageSide), std::pair(int64_t{51}, int64_t{70}));
  EXPECT_EQ(sides({26, 36}), std::pair(int64_t{51}, int64_t{70}));
  EXPECT_EQ(sides({26, 35}), std::pair(int64_t{26}, int64_t{35}));
  EXPECT_EQ(sides({7, 19}), std::pair(int64_t{26}, int64_t{35}));
  EXPECT_EQ(sides({1, 1}), std::pair(int64_t{7}, int64_t{9}));
  ImageBuffers buffers;
  const Image& small = read_image(bytes_of(file), 3, {20, 30}, "a.jpg", buffers);
  const Image whole = resize(decode_image(bytes_of(file), 3, "a.jpg"), {20, 30});
  ASSERT_EQ(small.pixels.size(), whole.pixels.size());
  for (size_t i = 0; i < whole.pixels.size(); ++i) EXPECT_NEAR(small.pixels[i], whole.pixels[i], 2) << i;
}

}  // namespace
}  // namespace hearth::data
