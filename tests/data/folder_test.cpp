#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <map>

#include "data/dataset.h"
#include "data/images/augment.h"
#include "data/shapes.h"
#include "files.h"
#include "limited_child.h"
#include "shared_data.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

void put_image(const fs::path& path) { put_file(path, encode_png(speckled(6, 5, 3))); }

/// Two classes with two images each for training, one each for tests.
void put_folder(const fs::path& root) {
  for (const char* name : {"dog", "Cat"}) {
    put_image(root / "train" / name / "1.png");
    put_image(root / "train" / name / "2.PNG");
    put_image(root / "test" / name / "1.png");
  }
}

DatasetOptions folder_options(const fs::path& root, const char* split) {
  return {.kind = "folder", .path = root, .split = split, .image_size = 4};
}

TEST(Folder, ClassesInByteOrder) {
  const TemporaryFolder folder;
  put_folder(folder.path());
  put_file(folder.path() / "train/dog/notes.txt", "not a picture");
  put_file(folder.path() / "train/.cache/x.png", "hidden");
  const auto dataset = open_dataset(folder_options(folder.path(), "train"));
  EXPECT_THAT(dataset->class_names(), ElementsAre("Cat", "dog"));
  EXPECT_THAT(dataset->notes(),
              ElementsAre(HasSubstr("1 file in the folders of the images is not read (PNG, ")));
  EXPECT_THAT(dataset->notes()[0], HasSubstr("train/dog/notes.txt"));
  EXPECT_EQ(dataset->size(), 4);
  std::vector<uint8_t> pixels(4 * 4 * 3);
  int32_t label = -1;
  dataset->read(2, pixels.data(), &label);
  EXPECT_EQ(label, 1);
  EXPECT_EQ(pixels, resize(speckled(6, 5, 3), 4).pixels);
}

TEST(Folder, AMissingClassIsNamed) {
  const TemporaryFolder folder;
  put_folder(folder.path());
  fs::remove_all(folder.path() / "test/dog");
  EXPECT_THAT(error_of([&] { open_dataset(folder_options(folder.path(), "test")); }),
              HasSubstr("expected a folder for the class 'dog' at "));
  fs::remove_all(folder.path() / "train");
  EXPECT_THAT(error_of([&] { open_dataset(folder_options(folder.path(), "test")); }),
              HasSubstr("expected train/CLASS/*"));
  EXPECT_THAT(error_of([&] { open_dataset(folder_options(folder.path() / "none", "test")); }),
              HasSubstr("expected a folder at data.path"));
}

TEST(Folder, TheCheckListsEverything) {
  const TemporaryFolder folder;
  put_folder(folder.path());
  fs::remove(folder.path() / "test/Cat/1.png");
  fs::remove_all(folder.path() / "test/dog");
  put_image(folder.path() / "test/bird/1.png");
  EXPECT_EQ(check_dataset(folder_options(folder.path(), "test")).faults.size(), 3U);

  put_file(folder.path() / "train/Cat/broken.jpg", encode_png(speckled(6, 5, 3)).substr(0, 60));
  put_file(folder.path() / "train/dog/empty.png", "");
  const DatasetCheck check = check_dataset(folder_options(folder.path(), "train"));
  EXPECT_THAT(check.per_class, ElementsAre(2, 2));
  ASSERT_EQ(check.faults.size(), 2U);
  EXPECT_THAT(check.faults[0], HasSubstr("train/Cat/broken.jpg: cannot decode the PNG"));
  EXPECT_THAT(check.faults[1],
              HasSubstr("train/dog/empty.png: the file is empty; replace it with an image ("));
}

TEST(Folder, RealImages) {
  HEARTH_SHARED_DATA(root, "cifar10_jpeg");
  const auto train = open_dataset({.kind = "folder", .path = root, .split = "train"});
  EXPECT_EQ(train->size(), 3000);
  const DatasetCheck check = check_dataset({.kind = "folder", .path = root, .split = "test"});
  EXPECT_EQ(check.class_names[0], "airplane");
  EXPECT_EQ(check.per_class, std::vector<int64_t>(10, 100));
  EXPECT_TRUE(check.faults.empty());
}

TEST(Dataset, UnknownNamesAreExplained) {
  EXPECT_THAT(error_of([] { open_dataset({.kind = "shape"}); }), HasSubstr("did you mean 'shapes'?"));
  EXPECT_THAT(error_of([] { open_dataset({.split = "dev"}); }), HasSubstr("'train' or 'test'"));
  EXPECT_THAT(error_of([] { open_dataset({.image_size = 4}); }), HasSubstr("8 to 4096"));
  EXPECT_THAT(error_of([] { open_dataset({.count = 0}); }), HasSubstr("at least 1"));
}

TEST(Shapes, APureFunctionWithMaskAndBox) {
  std::vector<uint8_t> first(48 * 48 * 3), second(first.size()), mask(48 * 48);
  std::vector<int> per_class(kNumShapes);
  for (int64_t index = 0; index < 300; ++index) {
    const ShapeScene scene = draw_shape(5, index, 48, first.data(), mask.data());
    EXPECT_EQ(draw_shape(5, index, 48, second.data(), nullptr).box, scene.box);
    EXPECT_EQ(first, second);
    ++per_class.at(static_cast<size_t>(scene.label));
    std::array<int64_t, 4> box{48, 48, 0, 0};
    for (int64_t i = 0; i < 48 * 48; ++i) {
      if (mask[static_cast<size_t>(i)] == 0) continue;
      box = {std::min(box[0], i % 48), std::min(box[1], i / 48), std::max(box[2], i % 48 + 1),
             std::max(box[3], i / 48 + 1)};
    }
    EXPECT_EQ(box, scene.box) << index;
    EXPECT_GE(box[2] - box[0], 8) << index;
  }
  for (const int count : per_class) EXPECT_GT(count, 10);
}

TEST(Shapes, LabelsAreKnownWithoutDrawing) {
  const auto shapes = open_dataset({.image_size = 16, .count = 40});
  std::vector<uint8_t> pixels(16 * 16 * 3);
  for (int64_t i = 0; i < shapes->size(); ++i) {
    int32_t label = -1;
    shapes->read(i, pixels.data(), &label);
    EXPECT_EQ(shapes->check(i), label);
  }
  const auto large = open_dataset({.image_size = 4096, .count = 1'000'000});
  EXPECT_WITHIN(16 << 20, { check_dataset(*large); });
}

TEST(Shapes, TrainAndTestDiffer) {
  const auto train = open_dataset({.count = 5});
  const auto test = open_dataset({.split = "test", .count = 5});
  std::vector<uint8_t> a(3072), b(3072);
  int32_t label = 0;
  train->read(0, a.data(), &label);
  test->read(0, b.data(), &label);
  EXPECT_NE(a, b);
}

TEST(Augment, OnlyNormalizes) {
  const PixelOptions options{.mean = {0.5F, 0, 0}, .std = {0.5F, 1, 2}};
  const std::vector<uint8_t> pixels{255, 255, 255};
  std::vector<float> out(3);
  Augmenter{options, 1, 3}.apply(1, 0, pixels.data(), out.data());
  EXPECT_THAT(out, ElementsAre(1, 1, 0.5F));
}

TEST(Augment, NormalizedPixelsConvertBack) {
  const PixelOptions options{.mean = {0.485F, 0.456F, 0.406F}, .std = {0.229F, 0.224F, 0.225F}};
  const Image image = speckled(8, 4, 3);
  std::vector<float> normalized(image.pixels.size());
  Augmenter{options, image.size(), 3}.apply(1, 0, image.pixels.data(), normalized.data());
  EXPECT_EQ(image_of_normalized(options, image.size(), 3, normalized.data()).pixels, image.pixels);
}

/// How often each of the placements of a 3 x 3 image occurs.
TEST(Augment, CropsAndFlipsEveryWay) {
  const PixelOptions options{.augment = {.crop_padding = 1, .flip = true}, .mean = {0}, .std = {1}};
  const std::vector<uint8_t> pixels{1, 2, 3, 4, 5, 6, 7, 8, 9};
  std::map<std::vector<int>, int> seen;
  for (int64_t sample = 0; sample < 1800; ++sample) {
    std::vector<float> out(9);
    Augmenter{options, 3, 1}.apply(7, sample, pixels.data(), out.data());
    std::vector<int> rounded;
    for (const float value : out) rounded.push_back(static_cast<int>(value * 255 + 0.5F));
    ++seen[rounded];
  }
  EXPECT_EQ(seen.size(), 18U);
  for (const auto& [picture, count] : seen) EXPECT_NEAR(count, 100, 45);
  EXPECT_EQ(seen.count({0, 0, 0, 0, 1, 2, 0, 4, 5}), 1U);
  EXPECT_EQ(seen.count({3, 2, 1, 6, 5, 4, 9, 8, 7}), 1U);
}

TEST(Augment, JitterKeepsTheRangeAndChangesWithTheEpoch) {
  const PixelOptions options{.augment = {.jitter = 0.5F}, .mean = {0}, .std = {1}};
  const Image image = speckled(8, 8, 3);
  std::vector<float> first(192), second(192);
  Augmenter{options, 8, 3}.apply(1, 0, image.pixels.data(), first.data());
  Augmenter{options, 8, 3}.apply(2, 0, image.pixels.data(), second.data());
  EXPECT_NE(first, second);
  for (const float value : first) EXPECT_TRUE(value >= 0 && value <= 1);
}

TEST(Augment, RefusesWhatCannotBe) {
  const auto check = [](const PixelOptions& options) {
    return error_of([&] { check_pixels(options, 32, 3); });
  };
  EXPECT_EQ(check({}), "no error");
  EXPECT_THAT(check({.augment = {.crop_padding = 33}}), HasSubstr("crop padding"));
  EXPECT_THAT(check({.augment = {.jitter = 1.5F}}), HasSubstr("jitter"));
  EXPECT_THAT(check({.mean = {1, 2}}), HasSubstr("one value or 3"));
  EXPECT_THAT(check({.std = {0}}), HasSubstr("above 0"));
}

}  // namespace
}  // namespace hearth::data
