#include "data/image.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
// jpeglib.h needs stdio.h before it.
#include <cstdio>

#include <jpeglib.h>

#include <cstdlib>

#include "base/file.h"
#include "files.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

using testing::HasSubstr;

Image flat(int64_t side, std::vector<uint8_t> colour) {
  Image image{.height = side, .width = side, .channels = std::ssize(colour)};
  for (int64_t i = 0; i < side * side; ++i)
    image.pixels.insert(image.pixels.end(), colour.begin(), colour.end());
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
      EXPECT_TRUE(text.starts_with("pic: expected ")) << size << " of " << file.size() << ": " << text;
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
  EXPECT_THAT(error_of([&] { decode_image(bytes_of(jpeg), 3, "f"); }), HasSubstr("16384 a side"));
  EXPECT_THROW(check_image_size(16000, 16000, "f"), UserError);
  EXPECT_NO_THROW(check_image_size(8192, 8192, "f"));
}

TEST(Image, JpegColours) {
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
  EXPECT_EQ(resize(two, 1, 4).pixels, (std::vector<uint8_t>{0, 25, 75, 100}));
  EXPECT_EQ(resize(two, 1, 1).pixels, (std::vector<uint8_t>{50}));
  EXPECT_EQ(enlarge(two, 2).pixels, (std::vector<uint8_t>{0, 0, 100, 100, 0, 0, 100, 100}));
  EXPECT_EQ(resize(flat(37, {5, 6, 7}), 8, 8).pixels, flat(8, {5, 6, 7}).pixels);
}

TEST(Image, NeitherPngNorJpeg) {
  EXPECT_THAT(error_of([] { decode_image(bytes_of("GIF89a"), 3, "f"); }), HasSubstr("neither"));
  EXPECT_THAT(error_of([] { decode_image({}, 3, "f"); }), HasSubstr("empty"));
}

}  // namespace
}  // namespace hearth::data
