#include "data/boxes/box_augment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

#include "data/images/warp.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::HasSubstr;

constexpr int64_t kHeight = 60, kWidth = 80;

/// Black with a rectangle of one color.
Image rectangle(int64_t height, int64_t width, const Box& box, std::array<uint8_t, 3> color) {
  Image image{.height = height, .width = width, .channels = 3};
  image.pixels.resize(static_cast<size_t>(height * width * 3));
  for (auto y = static_cast<int64_t>(box.y0); y < static_cast<int64_t>(box.y1); ++y)
    for (auto x = static_cast<int64_t>(box.x0); x < static_cast<int64_t>(box.x1); ++x)
      std::ranges::copy(color, image.pixels.begin() + (y * width + x) * 3);
  return image;
}

/// Three images with a rectangle in red, green or blue, which is their class.
BoxedImages put_rectangles(const fs::path& folder) {
  BoxedImages set{.class_names = {"red", "green", "blue"}, .category_ids = {0, 1, 2}};
  const std::array<Box, 3> boxes{{{10, 5, 40, 30}, {50, 30, 78, 56, 1}, {8, 20, 70, 44, 2}}};
  for (size_t i = 0; i < boxes.size(); ++i) {
    std::array<uint8_t, 3> color{};
    color[i] = 255;
    BoxedImage picture{.file = folder / fmt::format("{}.png", i), .width = kWidth, .height = kHeight};
    picture.boxes = {boxes[i]};
    picture.boxes[0].area = (boxes[i].x1 - boxes[i].x0) * (boxes[i].y1 - boxes[i].y0);
    put_file(picture.file, encode_png(rectangle(kHeight, kWidth, boxes[i], color)));
    set.images.push_back(picture);
  }
  return set;
}

/// Nothing random but what a test asks for.
BoxAugment still() {
  return {.mosaic = 0,
          .mixup = 0,
          .degrees = 0,
          .translate = 0,
          .shear = 0,
          .scale_min = 1,
          .scale_max = 1,
          .flip = 0,
          .hsv = 0};
}

/// Bounds of the pixels around a box in which the class's channel is above half and the others below.
Box bounds_of_color(const Image& image, const Box& box, double around) {
  const auto inside = [](double value, int64_t most) {
    return std::clamp<int64_t>(static_cast<int64_t>(std::lround(value)), 0, most);
  };
  Box bounds{.x0 = 1e9, .y0 = 1e9, .x1 = -1, .y1 = -1};
  for (int64_t y = inside(box.y0 - around, image.height); y < inside(box.y1 + around, image.height); ++y) {
    for (int64_t x = inside(box.x0 - around, image.width); x < inside(box.x1 + around, image.width); ++x) {
      const uint8_t* pixel = image.pixels.data() + (y * image.width + x) * 3;
      bool is = true;
      for (int c = 0; c < 3; ++c) is &= (pixel[c] > 150) == (c == box.label);
      if (!is) continue;
      bounds.x0 = std::min(bounds.x0, static_cast<double>(x));
      bounds.y0 = std::min(bounds.y0, static_cast<double>(y));
      bounds.x1 = std::max(bounds.x1, static_cast<double>(x + 1));
      bounds.y1 = std::max(bounds.y1, static_cast<double>(y + 1));
    }
  }
  return bounds;
}

/// How far the box is from what is seen, in pixels.
double distance(const Box& a, const Box& b) {
  return std::max(
      {std::fabs(a.x0 - b.x0), std::fabs(a.y0 - b.y0), std::fabs(a.x1 - b.x1), std::fabs(a.y1 - b.y1)});
}

TEST(BoxAugment, BoxesOfMosaicsAreWhereTheirPixelsAre) {
  const TemporaryFolder folder;
  const BoxedImages set = put_rectangles(folder.path());
  const ImageReader reader(set, 96, 96, nullptr);
  BoxAugment augment = still();
  augment.mosaic = 1;
  augment.flip = 0.5;
  augment.translate = 0.1;
  augment.scale_min = 0.5;
  augment.scale_max = 1.5;
  int num_boxes = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    const BoxSample sample =
        make_train_sample(set, reader, augment, 96, 96, key, static_cast<int64_t>(key % 3));
    ASSERT_EQ(sample.image.height, 96);
    for (const Box& box : sample.boxes) {
      EXPECT_LT(distance(box, bounds_of_color(sample.image, box, 1)), 1.1) << key;
      EXPECT_DOUBLE_EQ(box.area, (box.x1 - box.x0) * (box.y1 - box.y0));
      ++num_boxes;
    }
  }
  EXPECT_GT(num_boxes, 150);
}

TEST(BoxAugment, TurnedBoxesAreWhereTheirPixelsAre) {
  const Box box{.x0 = 20, .y0 = 15, .x1 = 70, .y1 = 50, .label = 1};
  const Image image = rectangle(64, 90, box, {0, 255, 0});
  for (const double degrees : {-30.0, 10.0, 75.0}) {
    const double turn = degrees * 3.14159265358979 / 180;
    const Affine map{.xx = std::cos(turn),
                     .xy = std::sin(turn),
                     .x0 = 60,
                     .yx = -std::sin(turn),
                     .yy = std::cos(turn),
                     .y0 = 70};
    const Image turned = warp(image, map, 160, 180);
    Box wanted{.x0 = 1e9, .y0 = 1e9, .x1 = -1e9, .y1 = -1e9, .label = 1};
    for (const double x : {box.x0, box.x1}) {
      for (const double y : {box.y0, box.y1}) {
        wanted.x0 = std::min(wanted.x0, map.xx * x + map.xy * y + map.x0);
        wanted.x1 = std::max(wanted.x1, map.xx * x + map.xy * y + map.x0);
        wanted.y0 = std::min(wanted.y0, map.yx * x + map.yy * y + map.y0);
        wanted.y1 = std::max(wanted.y1, map.yx * x + map.yy * y + map.y0);
      }
    }
    EXPECT_LT(distance(wanted, bounds_of_color(turned, wanted, 3)), 1.6) << degrees;
  }
}

TEST(BoxAugment, WarpByWholePixelsCopies) {
  const Image image = speckled(20, 30, 3);
  const Image moved = warp(image, {.x0 = 4, .y0 = -3}, 20, 30);
  for (int64_t y = 0; y < 20; ++y) {
    for (int64_t x = 0; x < 30; ++x) {
      const int64_t from_y = y + 3, from_x = x - 4;
      const bool inside = from_y < 19 && from_x >= 0 && from_x < 29;
      for (int64_t c = 0; c < 3; ++c)
        EXPECT_EQ(moved.pixels[static_cast<size_t>((y * 30 + x) * 3 + c)],
                  inside ? image.pixels[static_cast<size_t>((from_y * 30 + from_x) * 3 + c)] : kFrameGray);
    }
  }
}

TEST(BoxAugment, TheSameOnAnyThreadAndWithoutACache) {
  const TemporaryFolder folder;
  const BoxedImages set = put_rectangles(folder.path());
  const auto budget = std::make_shared<ImageCacheBudget>(1 << 20);
  const ImageReader cached(set, 48, 64, budget), forgetful(set, 48, 64, nullptr);
  const auto sample = [&](const ImageReader& reader, int64_t index) {
    return make_train_sample(set, reader, {}, 48, 64, 5, index % 3);
  };
  std::vector<BoxSample> found(12);
  {
    std::vector<std::thread> threads;
    for (int64_t t = 0; t < 4; ++t)
      threads.emplace_back([&, t] {
        for (int64_t i = t; i < 12; i += 4) found[static_cast<size_t>(i)] = sample(cached, i);
      });
    for (std::thread& thread : threads) thread.join();
  }
  for (int64_t i = 0; i < 12; ++i) {
    const BoxSample again = sample(forgetful, i);
    EXPECT_EQ(again.image.pixels, found[static_cast<size_t>(i)].image.pixels);
    EXPECT_EQ(again.boxes.size(), found[static_cast<size_t>(i)].boxes.size());
  }
  EXPECT_NE(sample(cached, 0).image.pixels, make_train_sample(set, cached, {}, 48, 64, 6, 0).image.pixels);
  EXPECT_GT(budget->used(), 0);
}

TEST(BoxAugment, MixupAddsBoxesAtHalfTheLight) {
  const TemporaryFolder folder;
  const BoxedImages set = put_rectangles(folder.path());
  const ImageReader reader(set, 96, 96, nullptr);
  BoxAugment augment = still();
  augment.mosaic = augment.mixup = 1;
  BoxAugment alone = augment;
  alone.mixup = 0;
  size_t mixed = 0, plain = 0;
  for (uint64_t key = 0; key < 30; ++key) {
    const BoxSample sample = make_train_sample(set, reader, augment, 96, 96, key, 0);
    const BoxSample base = make_train_sample(set, reader, alone, 96, 96, key, 0);
    mixed += sample.boxes.size();
    plain += base.boxes.size();
    if (sample.boxes.size() == base.boxes.size()) continue;
    for (size_t i = 0; i < sample.image.pixels.size(); ++i)
      ASSERT_LE(std::abs(2 * sample.image.pixels[i] - base.image.pixels[i] - 128), 129);
  }
  EXPECT_GT(mixed, plain + 15);
}

TEST(BoxAugment, WhatIsHardlyInsideIsDropped) {
  const TemporaryFolder folder;
  BoxedImages set = put_rectangles(folder.path());
  const ImageReader reader(set, kHeight, kWidth, nullptr);
  set.images[0].boxes = {{.x0 = 0, .y0 = 0, .x1 = 1, .y1 = 50}, {.x0 = 0, .y0 = 0, .x1 = 2, .y1 = 2}};
  const BoxSample sample = make_train_sample(set, reader, still(), kHeight, kWidth, 0, 0);
  ASSERT_EQ(sample.boxes.size(), 1U);
  EXPECT_EQ(sample.boxes[0].x1, 2);
  // At scale 2 the first 1/20 of a wide object is all that is inside.
  set.images[0].boxes = {{.x0 = 38, .y0 = 0, .x1 = 78, .y1 = 30}, {.x0 = 30, .y0 = 0, .x1 = 50, .y1 = 30}};
  BoxAugment twice = still();
  twice.mosaic = 1;
  twice.scale_min = twice.scale_max = 2;
  BoxedImages one = set;
  one.images.resize(1);
  const ImageReader of_one(one, kHeight, kWidth, nullptr);
  for (uint64_t key = 0; key < 50; ++key) {
    for (const Box& box : make_train_sample(one, of_one, twice, kHeight, kWidth, key, 0).boxes)
      EXPECT_GE(box.area, 0.1 * 4 * 600 * 0.1);
  }
}

TEST(BoxAugment, LettersAreUndone) {
  const TemporaryFolder folder;
  const BoxedImages set = put_rectangles(folder.path());
  const ImageReader reader(set, 100, 50, nullptr);
  const EvalSample sample = make_eval_sample(set, reader, 100, 50, 2);
  // 80 x 60 into a frame 50 wide and 100 high.
  EXPECT_EQ(sample.letterbox.scale_x, 50.0 / 80);
  EXPECT_EQ(sample.letterbox.scale_y, 37.0 / 60);
  const size_t below = static_cast<size_t>(37 * 50 * 3);
  EXPECT_EQ(sample.image.pixels[below], kFrameGray);
  EXPECT_NE(sample.image.pixels[below - 1], kFrameGray);
  ASSERT_EQ(sample.boxes.size(), 1U);
  EXPECT_LT(distance(sample.boxes[0], bounds_of_color(sample.image, sample.boxes[0], 1)), 1.1);
  EXPECT_LT(distance(sample.letterbox.undo(sample.boxes[0]), set.images[2].boxes[0]), 1e-9);
  const EvalSample direct = letterbox(*reader.read(2), 100, 50);
  EXPECT_EQ(direct.image.pixels, sample.image.pixels);
  EXPECT_EQ(fit({1000, 3}, 10).width, 1);
}

TEST(BoxAugment, ColorsShift) {
  const auto shifted = [](std::array<uint8_t, 3> color, int hue, int saturation, int value) {
    Image image = rectangle(1, 1, {0, 0, 1, 1}, color);
    shift_hsv(image, hue, saturation, value);
    return std::vector<int>(image.pixels.begin(), image.pixels.end());
  };
  using testing::ElementsAre;
  EXPECT_THAT(shifted({255, 0, 0}, 60, 0, 0), ElementsAre(0, 255, 0));
  EXPECT_THAT(shifted({255, 0, 0}, -30, 0, 0), ElementsAre(255, 0, 255));
  EXPECT_THAT(shifted({255, 0, 255}, 30, 0, 0), ElementsAre(255, 0, 0));
  EXPECT_THAT(shifted({200, 100, 50}, 0, 0, 20), ElementsAre(220, 110, 55));
  EXPECT_THAT(shifted({200, 100, 100}, 0, 51, 0), ElementsAre(200, 60, 60));
  EXPECT_THAT(shifted({114, 114, 114}, 5, 30, 0), ElementsAre(114, 114, 114));
  EXPECT_THAT(shifted({114, 114, 114}, 5, 30, -200), ElementsAre(0, 0, 0));
  EXPECT_THAT(shifted({12, 200, 99}, 0, 0, 0), ElementsAre(12, 200, 99));
}

TEST(BoxAugment, NumbersOutOfRangeAreRefused) {
  BoxAugment augment;
  EXPECT_EQ(error_of([&] { check_box_augment(augment); }), "no error");
  augment.scale_max = 0.05;
  EXPECT_EQ(error_of([&] { check_box_augment(augment); }),
            "expected a mosaic's largest scale from 0.1 to 10, got 0.05");
  augment = {.mosaic = std::nan("")};
  EXPECT_THAT(error_of([&] { check_box_augment(augment); }),
              HasSubstr("expected a probability of mosaics from 0 to 1"));
}

TEST(ImageReader, KeepsUpToItsBudget) {
  const TemporaryFolder folder;
  BoxedImages set = put_rectangles(folder.path());
  const int64_t bytes = ImageCache::bytes_of(gray_image(30, 40));
  const auto budget = std::make_shared<ImageCacheBudget>(3 * bytes - 1);
  const ImageReader reader(set, 30, 80, budget);
  for (int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(reader.read(i)->height, 30);
    EXPECT_EQ(reader.read(i)->width, 40);
  }
  EXPECT_EQ(budget->used(), 2 * bytes);
  EXPECT_EQ(reader.read(0), reader.read(0));
  EXPECT_NE(reader.read(2), reader.read(2));
  EXPECT_EQ(ImageReader(set, 200, 200, nullptr).read(0)->height, kHeight);
  set.images[1].width = 81;
  EXPECT_THAT(error_of([&] { ImageReader(set, 30, 80, nullptr).read(1); }),
              HasSubstr("1.png: the image has 80x60 pixels, but its labels are for 81x60"));
}

}  // namespace
}  // namespace hearth::data
