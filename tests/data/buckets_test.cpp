#include "data/captions/buckets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "data/captions/captions.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;

TEST(Buckets, SidesAreMultiplesAndTheAreaIsFull) {
  EXPECT_THAT(Buckets(512).sizes(), ElementsAre(Extent(256, 1024), Extent(320, 768), Extent(384, 640),
                                                Extent(448, 576), Extent(512), Extent(576, 448),
                                                Extent(640, 384), Extent(768, 320), Extent(1024, 256)));
  EXPECT_THAT(Buckets(64).sizes(), ElementsAre(Extent(64)));
  EXPECT_THAT(Buckets(32, 16).sizes(), ElementsAre(Extent(16, 64), Extent(32), Extent(64, 16)));
  for (const int64_t resolution : {512, 768, 1024}) {
    const Buckets buckets(resolution);
    for (const Extent size : buckets.sizes()) {
      EXPECT_LE(size.num_pixels(), resolution * resolution);
      EXPECT_GT((size.height + 64) * size.width, resolution * resolution);
      EXPECT_EQ(size.height % 64 + size.width % 64, 0);
    }
  }
}

TEST(Buckets, TheNearestInAspectIsCoveredAndCroppedAtTheCenter) {
  const Buckets buckets(512);
  const auto crop = [&](int64_t height, int64_t width) { return buckets.crop({height, width}); };
  EXPECT_EQ(crop(512, 512), (BucketCrop{.bucket = 512, .resized = 512}));
  EXPECT_EQ(crop(4000, 3000), (BucketCrop{.bucket = {576, 448}, .resized = {597, 448}, .top = 10}));
  EXPECT_EQ(crop(3000, 4000), (BucketCrop{.bucket = {448, 576}, .resized = {448, 597}, .left = 10}));
  EXPECT_EQ(crop(1080, 1920), (BucketCrop{.bucket = {384, 640}, .resized = {384, 683}, .left = 21}));
  EXPECT_EQ(crop(300, 300), (BucketCrop{.bucket = 512, .resized = 512}));
  EXPECT_EQ(crop(9000, 1000).bucket, Extent(1024, 256));
  EXPECT_EQ(crop(9000, 1000), (BucketCrop{.bucket = {1024, 256}, .resized = {2304, 256}, .top = 640}));
  // A image and the same one turned are treated alike.
  for (int64_t width = 256; width <= 2048; width += 37) {
    const BucketCrop wide = crop(600, width), high = crop(width, 600);
    EXPECT_EQ(wide.bucket, Extent(high.bucket.width, high.bucket.height)) << width;
    EXPECT_EQ(wide.left, high.top) << width;
    EXPECT_GE(wide.resized.height, wide.bucket.height);
    EXPECT_GE(wide.resized.width, wide.bucket.width);
    EXPECT_TRUE(wide.resized.height == wide.bucket.height || wide.resized.width == wide.bucket.width);
  }
}

TEST(Buckets, WhatDoesNotFitIsExplained) {
  EXPECT_TRUE(Buckets(512).is_small({255, 900}));
  EXPECT_FALSE(Buckets(512).is_small({256, 900}));
  EXPECT_EQ(Buckets(512).crop({8, 8}), (BucketCrop{.bucket = 512, .resized = 512}));
  EXPECT_EQ(error_of([] { Buckets(500); }),
            "expected data.image_size as a multiple of 64 of at most 8192, got 500; try data.image_size=512");
  EXPECT_EQ(error_of([] { Buckets(20); }),
            "expected data.image_size as a multiple of 64 of at most 8192, got 20; try data.image_size=64");
}

TEST(Buckets, ReadingKeepsTheCenter) {
  const TemporaryFolder folder;
  const Image image = speckled(40, 20, 3);
  put_file(folder.path() / "a.png", encode_png(image));
  const BucketCrop crop = Buckets(32, 16).crop(image.size());
  EXPECT_EQ(crop, (BucketCrop{.bucket = 32, .resized = {64, 32}, .top = 16}));
  const Image found = read_cropped(folder.path() / "a.png", crop);
  ASSERT_EQ(found.size(), Extent(32));
  const Image whole = resize(image, {64, 32});
  EXPECT_TRUE(std::equal(found.pixels.begin(), found.pixels.end(), whole.pixels.begin() + 16 * 32 * 3));
}

/// Six gray pixels, of which each EXIF orientation makes another image.
TEST(Buckets, ImagesAreTurnedUpright) {
  const Image stored{.height = 2, .width = 3, .channels = 1, .pixels = {1, 2, 3, 4, 5, 6}};
  const auto pixels = [&](int orientation) { return orient(stored, orientation).pixels; };
  EXPECT_THAT(pixels(1), ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(pixels(2), ElementsAre(3, 2, 1, 6, 5, 4));
  EXPECT_THAT(pixels(3), ElementsAre(6, 5, 4, 3, 2, 1));
  EXPECT_THAT(pixels(4), ElementsAre(4, 5, 6, 1, 2, 3));
  EXPECT_THAT(pixels(5), ElementsAre(1, 4, 2, 5, 3, 6));
  EXPECT_THAT(pixels(6), ElementsAre(4, 1, 5, 2, 6, 3));
  EXPECT_THAT(pixels(7), ElementsAre(6, 3, 5, 2, 4, 1));
  EXPECT_THAT(pixels(8), ElementsAre(3, 6, 2, 5, 1, 4));
  EXPECT_EQ(orient(stored, 8).size(), Extent(3, 2));

  const TemporaryFolder folder;
  const fs::path file = folder.path() / "a.jpg";
  const std::string jpeg = encode_jpeg(speckled(16, 64, 3));
  put_file(folder.path() / "a.txt", "x");
  put_file(file, with_orientation(jpeg, 6));
  const CaptionedImage image = read_captions(folder.path())[0];
  EXPECT_EQ(image.size, Extent(64, 16));
  const BucketCrop crop = Buckets(32, 16).crop(image.size);
  EXPECT_EQ(crop, (BucketCrop{.bucket = {64, 16}, .resized = {64, 16}}));
  const Image found = read_cropped(file, crop);
  EXPECT_EQ(found.size(), Extent(64, 16));
  EXPECT_EQ(found.pixels, orient(decode_image(bytes_of(jpeg), 3, "a"), 6).pixels);
}

}  // namespace
}  // namespace hearth::data
