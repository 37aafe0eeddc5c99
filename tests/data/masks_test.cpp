#include "data/masks/masks.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "data/masks/mask_rows.h"
#include "data/shapes.h"
#include "files.h"
#include "temporary_folder.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr int64_t kSide = 6;

Image numbers(std::vector<uint8_t> pixels, int64_t width = kSide) {
  const auto height = std::ssize(pixels) / width;
  return {.height = height, .width = width, .channels = 1, .pixels = std::move(pixels)};
}

/// Columns of the classes 0, 1 and 2.
std::vector<uint8_t> columns() {
  std::vector<uint8_t> pixels;
  for (int64_t i = 0; i < kSide * kSide; ++i) pixels.push_back(static_cast<uint8_t>(i % kSide / 2));
  return pixels;
}

void put_small_image(const fs::path& path) { put_file(path, encode_png(speckled(kSide, kSide, 3))); }

/// Images 1 and 2 for training and 3 to hold out, in one of the layouts.
void put_set(const fs::path& root, const char* images, const char* masks, const std::string& mask) {
  for (const char* name : {"1.png", "2.png"}) {
    put_small_image(root / fmt::format(fmt::runtime(images), "train") / name);
    put_file(root / fmt::format(fmt::runtime(masks), "train") / name, mask);
  }
  put_small_image(root / fmt::format(fmt::runtime(images), "val") / "3.png");
  put_file(root / fmt::format(fmt::runtime(masks), "val") / "3.png", mask);
}

MaskOptions options_of(const fs::path& root, const char* split = "train", int64_t num_classes = 3) {
  return {.kind = "masks", .path = root, .split = split, .num_classes = num_classes};
}

std::string error_of_reading(const MaskOptions& options) {
  return error_of([&] {
    const auto images = open_masks(options);
    Image image, mask;
    for (int64_t i = 0; i < images->size(); ++i) images->read(i, image, mask);
  });
}

TEST(Masks, EveryLayoutIsFound) {
  const std::string mask = encode_png(numbers(columns()));
  const std::pair<const char*, const char*> layouts[] = {
      {"{}/images", "{}/masks"}, {"images/{}", "annotations/{}"}, {"{}", "{}annot"}, {"{}", "{}_labels"}};
  for (const auto& [images, masks] : layouts) {
    const TemporaryFolder folder;
    put_set(folder.path(), images, masks, mask);
    const auto train = open_masks(options_of(folder.path()));
    const auto test = open_masks(options_of(folder.path(), "test"));
    ASSERT_EQ(train->size(), 2) << images;
    ASSERT_EQ(test->size(), 1) << images;
    Image image, read;
    test->read(0, image, read);
    EXPECT_EQ(image.pixels, speckled(kSide, kSide, 3).pixels);
    EXPECT_EQ(read.pixels, columns());
  }
}

TEST(Masks, VocListsSayTheSplits) {
  const TemporaryFolder folder;
  const std::string mask = encode_png(numbers(columns()), std::vector(21, std::array<uint8_t, 3>{7, 8, 9}));
  for (const char* name : {"a", "b", "c"}) {
    put_small_image(folder.path() / "JPEGImages" / (std::string(name) + ".png"));
    put_file(folder.path() / "SegmentationClass" / (std::string(name) + ".png"), mask);
  }
  put_file(folder.path() / "ImageSets/Segmentation/train.txt", "c\na\n");
  put_file(folder.path() / "ImageSets/Segmentation/val.txt", "b\n");
  const auto train = open_masks(options_of(folder.path()));
  ASSERT_EQ(train->size(), 2);
  EXPECT_THAT(train->where(0), HasSubstr("c.png"));
  Image read;
  train->read_mask(1, read);
  // A palette's colors are not looked at.
  EXPECT_EQ(read.pixels, columns());
  put_file(folder.path() / "ImageSets/Segmentation/val.txt", "b\n\nd\n");
  EXPECT_THAT(error_of_reading(options_of(folder.path(), "test")), HasSubstr("val.txt:3: expected the name"));
}

TEST(Masks, EveryFifthIsHeldOutWhereNobodyDivided) {
  const TemporaryFolder folder;
  for (int i = 0; i < 10; ++i) {
    put_small_image(folder.path() / "images" / fmt::format("{}.png", i));
    put_file(folder.path() / "masks" / fmt::format("{}_mask.png", i), encode_png(numbers(columns())));
  }
  EXPECT_EQ(open_masks(options_of(folder.path()))->size(), 8);
  const auto test = open_masks(options_of(folder.path(), "test"));
  ASSERT_EQ(test->size(), 2);
  EXPECT_THAT(test->where(0), HasSubstr("4.png"));
}

TEST(Masks, ColorsAreThoseOfTheTable) {
  const TemporaryFolder folder;
  Image colors{.height = 1, .width = 3, .channels = 3, .pixels = {0, 0, 0, 9, 8, 7, 1, 2, 3}};
  put_set(folder.path(), "{}", "{}_labels", encode_png(colors));
  for (const char* name : {"train/1.png", "train/2.png", "val/3.png"})
    put_file(folder.path() / name, encode_png(speckled(1, 3, 3)));
  put_file(folder.path() / "class_dict.csv", "name,r,g,b\nsky,1,2,3\nVoid,9,8,7\nroad, 0, 0, 0\n");
  const auto train = open_masks(options_of(folder.path()));
  ASSERT_EQ(train->classes().size(), 2U);
  EXPECT_EQ(train->classes()[1].name, "road");
  Image read;
  train->read_mask(0, read);
  EXPECT_THAT(read.pixels, ElementsAre(1, kUnlabeled, 0));
  put_file(folder.path() / "train_labels/1.png", encode_png(speckled(1, 3, 3)));
  EXPECT_THAT(error_of_reading(options_of(folder.path())),
              testing::AllOf(HasSubstr("train_labels/1.png: the color "), HasSubstr("at x 0, y 0")));
}

TEST(Masks, WhatIsWrongIsNamed) {
  const TemporaryFolder folder;
  put_set(folder.path(), "{}/images", "{}/masks", encode_png(numbers(columns())));
  EXPECT_EQ(error_of_reading(options_of(folder.path())), "no error");
  EXPECT_THAT(
      error_of_reading(options_of(folder.path(), "train", 2)),
      HasSubstr(
          "train/masks/1.png: 2 at x 4, y 0 is not a class; classes are 0 to 1; set data.unlabeled=2 if"));
  MaskOptions unlabeled = options_of(folder.path(), "train", 2);
  unlabeled.unlabeled = 2;
  EXPECT_EQ(error_of_reading(unlabeled), "no error");
  put_file(folder.path() / "train/masks/2.png", encode_png(numbers({0, 0, 1, 1}, 2)));
  EXPECT_THAT(error_of_reading(options_of(folder.path())),
              testing::AllOf(HasSubstr("train/masks/2.png: the mask has "), HasSubstr(" has 6x6; export")));
  const MaskCheck check = check_masks(*open_masks(options_of(folder.path())));
  EXPECT_EQ(check.faults.size(), 1U);
  EXPECT_THAT(check.pixels, ElementsAre(12, 12, 12));
  put_file(folder.path() / "train/masks/2.png", "no picture");
  EXPECT_THAT(error_of_reading(options_of(folder.path())),
              HasSubstr("masks/2.png: this is not an image of a supported format; convert it to one (PNG"));
  fs::remove(folder.path() / "train/masks/2.png");
  EXPECT_THAT(error_of_reading(options_of(folder.path())), HasSubstr("2.png: expected its mask 2.png in "));
  fs::create_directories(folder.path() / "train/labels");
  EXPECT_THAT(error_of_reading(options_of(folder.path())), HasSubstr("expected one layout"));
  EXPECT_THAT(error_of_reading(options_of(folder.path() / "none")),
              HasSubstr("expected a folder at data.path"));
}

TEST(Masks, TablesAreChecked) {
  const TemporaryFolder folder;
  const fs::path table = folder.path() / "classes.csv";
  const auto fault = [&](const std::string& text) {
    put_file(table, text);
    return error_of([&] { read_class_table(table); });
  };
  EXPECT_EQ(fault("name\ncat\n# a comment\n\ndog\n"), "no error");
  EXPECT_EQ(read_class_table(table)[1].name, "dog");
  EXPECT_EQ(fault("\xEF\xBB\xBFname\ncat\ndog\n"), "no error");
  EXPECT_EQ(read_class_table(table)[0].name, "cat");
  EXPECT_EQ(read_class_table(table)[1].color, palette_color(1));
  EXPECT_THAT(fault("cat,1,2\n"),
              HasSubstr("classes.csv:1: expected a class as NAME or NAME,RED,GREEN,BLUE"));
  EXPECT_THAT(fault("cat,1,2,256\n"), HasSubstr("from 0 to 255"));
  EXPECT_THAT(fault("cat,1,2,3\ndog\n"), HasSubstr(":2: some classes have colors and some have none"));
  EXPECT_THAT(fault("cat,1,2,3\ncat,1,2,4\n"), HasSubstr(":2: the class 'cat' occurs twice"));
  EXPECT_THAT(fault("cat,1,2,3\ndog,1,2,3\n"), HasSubstr(":2: another class has the color of 'dog'"));
  EXPECT_THAT(fault("\n"), HasSubstr("there is no class; write the name of one in each line"));
}

TEST(Masks, ShapesHaveThem) {
  const auto images = open_masks({.image_size = {24, 40}, .count = 5, .seed = 3});
  ASSERT_EQ(images->classes().size(), 11U);
  for (int64_t i = 0; i < 5; ++i) {
    Image image, mask;
    images->read(i, image, mask);
    EXPECT_EQ(image.size(), (Extent{24, 40}));
    std::vector<uint8_t> drawn(24 * 40 * 3);
    const int label = draw_shape(seed_of_split(3, "train"), i, {24, 40}, drawn.data(), nullptr).label;
    EXPECT_EQ(image.pixels, drawn);
    const auto inside = std::ranges::count(mask.pixels, label + 1);
    EXPECT_GT(inside, 20) << i;
    EXPECT_EQ(inside + std::ranges::count(mask.pixels, 0), 24 * 40);
  }
}

TEST(Masks, MedianFrequencyWeighsByTheImagesThatHaveAClass) {
  const TemporaryFolder folder;
  // Class 0: 27 of 36 pixels in two images; class 1: 6 of 18 (class 2 is nowhere); unlabeled pixels do not
  // count.
  put_set(folder.path(), "{}/images", "{}/masks", encode_png(numbers(std::vector<uint8_t>(36, 0))));
  std::vector<uint8_t> half(36, kUnlabeled);
  std::fill_n(half.begin(), 6, uint8_t{1});
  std::fill_n(half.begin() + 6, 12, uint8_t{0});
  put_file(folder.path() / "train/masks/2.png", encode_png(numbers(half)));
  const std::vector<float> weights = median_frequency_weights(*open_masks(options_of(folder.path())));
  const double first = 48.0 / 54, second = 6.0 / 18, median = (first + second) / 2;
  ASSERT_EQ(weights.size(), 3U);
  EXPECT_FLOAT_EQ(weights[0], static_cast<float>(median / first));
  EXPECT_FLOAT_EQ(weights[1], static_cast<float>(median / second));
  EXPECT_EQ(weights[2], 0);
}

/// A image whose channel number c is bright where its mask has class c, so that a row can be held against
/// its mask.
class Painted : public MaskedImages {
 public:
  Painted() { classes_.resize(3); }
  int64_t size() const override { return 40; }
  void read(int64_t index, Image& image, Image& mask) const override {
    mask = numbers({}, 1);
    mask.height = 11 + index % 3;
    mask.width = 17;
    for (int64_t i = 0; i < mask.height * mask.width; ++i)
      mask.pixels.push_back(static_cast<uint8_t>(i / mask.width < 6 ? 0 : i % mask.width < 9 ? 1 : 2));
    image = {.height = mask.height, .width = mask.width, .channels = 3};
    for (const uint8_t label : mask.pixels) {
      for (int c = 0; c < 3; ++c) image.pixels.push_back(label == c ? 200 : 40);
    }
  }
  void read_mask(int64_t index, Image& mask) const override {
    Image image;
    read(index, image, mask);
  }
};

/// Row `index` of painted images: images back on a scale of 0 to 255, and labels.
struct PaintedRow {
  std::vector<float> image;
  std::vector<int32_t> mask;
  float weight = 0;
  bool operator==(const PaintedRow&) const = default;
};
PaintedRow make_row(const MaskRows& rows, Extent size, uint64_t key, int64_t index) {
  PaintedRow made{.image = std::vector<float>(static_cast<size_t>(3 * size.num_pixels())),
                  .mask = std::vector<int32_t>(static_cast<size_t>(size.num_pixels()))};
  rows.make({.key = key, .index = index},
            {reinterpret_cast<std::byte*>(made.image.data()), reinterpret_cast<std::byte*>(made.mask.data()),
             reinterpret_cast<std::byte*>(&made.weight)});
  return made;
}

TEST(MaskRows, TheMaskGoesWithTheImage) {
  const Painted images;
  const Extent size{16, 20};
  const MaskRows rows(images, {.size = size,
                               .min_scale = 0.5,
                               .max_scale = 2,
                               .pixels = {.augment = {.flip = true}, .mean = {0.05F}, .std = {1}},
                               .class_weights = {1, 2, 4}});
  int64_t checked = 0, outside = 0;
  for (int64_t index = 0; index < images.size(); ++index) {
    const PaintedRow row = make_row(rows, size, 9, index);
    EXPECT_EQ(row, make_row(rows, size, 9, index));
    float weight = 0;
    for (size_t i = 0; i < row.mask.size(); ++i) {
      if (row.mask[i] < 0) ++outside;
      if (row.mask[i] >= 0) weight += static_cast<float>(1 << row.mask[i]);
      // At edges, pixels are mixtures.
      const auto bright = [&](size_t c) { return row.image[3 * i + c] > 199.5F / 255 - 0.05F; };
      if (!bright(0) && !bright(1) && !bright(2)) continue;
      ++checked;
      EXPECT_TRUE(row.mask[i] >= 0 && bright(static_cast<size_t>(row.mask[i]))) << index << " " << i;
    }
    EXPECT_EQ(row.weight, weight);
  }
  EXPECT_GT(checked, 40 * 16 * 20 / 2);
  EXPECT_GT(outside, 1000);
  EXPECT_NE(make_row(rows, size, 9, 0), make_row(rows, size, 10, 0));
}

TEST(MaskRows, WithoutChangesResizesOrCuts) {
  const Painted images;
  Image image, mask;
  images.read(0, image, mask);
  const MaskRows same(images, {.size = image.size(), .pixels = {.mean = {0}, .std = {1}}});
  const PaintedRow row = make_row(same, image.size(), 1, 0);
  for (size_t i = 0; i < row.mask.size(); ++i) {
    EXPECT_EQ(row.mask[i], mask.pixels[i]);
    EXPECT_FLOAT_EQ(row.image[3 * i], static_cast<float>(image.pixels[3 * i]) / 255);
  }
  const MaskRows part(images, {.size = 8, .resizes = false, .pixels = {.mean = {0}, .std = {1}}});
  const PaintedRow cut = make_row(part, 8, 1, 0);
  EXPECT_EQ(std::ranges::count(cut.mask, -1), 0);
  EXPECT_THAT(error_of([&] { MaskRows(images, {.size = 8, .min_scale = 0}); }), HasSubstr("random scale"));
}

TEST(Png, PaletteIndicesAndGrayValuesComeBackAsNumbers) {
  const std::vector<std::array<uint8_t, 3>> palette = {{1, 2, 3}, {200, 0, 0}, {0, 200, 0}};
  const std::string indexed = encode_png(numbers(columns()), palette);
  Image read = decode_numbers(bytes_of(indexed), "x");
  EXPECT_EQ(read.pixels, columns());
  read = decode_image(bytes_of(indexed), 0, "x");
  EXPECT_EQ(read.channels, 3);
  EXPECT_EQ(read.pixels[0], 1);
  const std::string gray = encode_png(numbers(columns()));
  read = decode_numbers(bytes_of(gray), "x");
  EXPECT_EQ(read.pixels, columns());
}

}  // namespace
}  // namespace hearth::data
