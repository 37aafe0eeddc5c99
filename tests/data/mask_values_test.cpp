#include "data/masks/mask_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "files.h"
#include "temporary_folder.h"

namespace hearth::data {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

std::vector<int64_t> numbers_of(std::initializer_list<int64_t> values, int64_t num_classes,
                                int64_t unlabeled = kUnlabeledAuto) {
  std::map<int64_t, int64_t> pixels;
  for (const int64_t value : values) pixels[value] = 100;
  return choose_class_numbers(pixels, num_classes, unlabeled).numbers;
}

TEST(ClassNumbers, AreChosenByTheValuesOfAllMasks) {
  EXPECT_THAT(numbers_of({0, 1, 2, 255}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers_of({0, 2}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(numbers_of({0, 255}, 2), ElementsAre(0, 255));
  EXPECT_THAT(numbers_of({0, 255}, 0), ElementsAre(0, 255));
  EXPECT_THAT(numbers_of({0, 1, 255}, 2), ElementsAre(0, 1));
  // In ascending order.
  EXPECT_THAT(numbers_of({0, 128, 255}, 3), ElementsAre(0, 128, 255));
  EXPECT_THAT(numbers_of({0, 128, 255}, 0), ElementsAre(0, 128, 255));
  EXPECT_THAT(numbers_of({0, 128, 255}, 2), ElementsAre(0, 128));
  EXPECT_THAT(numbers_of({0, 50, 100}, 3), ElementsAre(0, 50, 100));
  // Class indices from 1.
  EXPECT_THAT(numbers_of({1, 2, 3}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of({1, 3}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of({1, 2, 3}, 0), ElementsAre(1, 2, 3));
  EXPECT_THAT(numbers_of({0, 1, 2, 3, 4}, 4, 0), ElementsAre(1, 2, 3, 4));
  // Without a number of classes, gaps are classes that no mask has.
  EXPECT_THAT(numbers_of({0, 1, 4}, 0), ElementsAre(0, 1, 2, 3, 4));
  // No rule fits.
  EXPECT_THAT(numbers_of({0, 1, 2, 7}, 3), IsEmpty());
  EXPECT_THAT(numbers_of({0, 50, 100, 150}, 3), IsEmpty());
}

TEST(ClassNumbers, UnlabeledIsAsAsked) {
  EXPECT_THAT(numbers_of({0, 255}, 2, 255), ElementsAre(0, 1));
  EXPECT_THAT(numbers_of({0, 1, 255}, 3, kUnlabeledNone), ElementsAre(0, 1, 255));
  EXPECT_THAT(numbers_of({0, 1, 2, 11}, 3, 11), ElementsAre(0, 1, 2));
}

TEST(ClassNumbers, OfLossyMasksAreTheFrequentOnes) {
  std::map<int64_t, int64_t> pixels;
  for (int64_t value = 0; value < 28; ++value) pixels[value] = pixels[255 - value] = 28 - value;
  pixels[0] = 900;
  pixels[255] = 500;
  pixels[120] = 30;
  EXPECT_THAT(choose_class_numbers(pixels, 2, kUnlabeledAuto).numbers, ElementsAre(0, 255));
  EXPECT_THAT(choose_class_numbers(pixels, 3, kUnlabeledAuto).numbers, ElementsAre(0, 120, 255));
  pixels[120] = 300;
  EXPECT_THAT(choose_class_numbers(pixels, 2, kUnlabeledAuto).numbers, IsEmpty());
  EXPECT_EQ(number_tolerance({0, 255}), 32);
  EXPECT_EQ(number_tolerance({0, 50, 100}), 12);
  EXPECT_EQ(number_tolerance({0, 1, 2}), 0);
}

constexpr int64_t kMaskSide = 8;

Image gray(std::vector<uint8_t> values) {
  Image image{.height = kMaskSide, .width = kMaskSide, .channels = 1};
  for (size_t i = 0; i < kMaskSide * kMaskSide; ++i)
    image.pixels.push_back(values[i * values.size() / (kMaskSide * kMaskSide)]);
  return image;
}

/// A set with a training mask and one that is held out.
class MaskSet : public testing::Test {
 protected:
  void put(const std::string& train_mask, const std::string& held_out_mask, const char* extension = ".png") {
    for (const char* split : {"train", "val"}) {
      put_file(folder_.path() / split / "images/1.png", encode_png(speckled(kMaskSide, kMaskSide, 3)));
      put_file(folder_.path() / split / ("masks/1" + std::string(extension)),
               split == std::string("train") ? train_mask : held_out_mask);
    }
  }
  MaskOptions options(const char* split, int64_t num_classes = 2) const {
    return {.kind = "masks",
            .path = folder_.path(),
            .split = split,
            .num_classes = num_classes,
            .unlabeled = unlabeled_};
  }
  MaskDecision decide(int64_t num_classes = 2) const {
    return decide_masks(options("train", num_classes), options("test", num_classes));
  }
  /// The training mask as classes, by what was decided.
  std::vector<uint8_t> classes(int64_t num_classes = 2) const {
    MaskOptions decided = options("train", num_classes);
    decided.class_numbers = decide(num_classes).class_numbers;
    Image mask;
    open_masks(decided)->read_mask(0, mask);
    return mask.pixels;
  }

  TemporaryFolder folder_;
  int64_t unlabeled_ = kUnlabeledAuto;
};

TEST_F(MaskSet, A255BesideA0IsClass1) {
  put(encode_png(gray({0, 255})), encode_png(gray({0})));
  const MaskDecision decision = decide();
  EXPECT_THAT(decision.class_numbers, ElementsAre(0, 255));
  EXPECT_THAT(decision.notes,
              ElementsAre(AllOf(HasSubstr("255 is class 1"), HasSubstr("0 and 255 are the only"))));
  EXPECT_EQ(classes(), gray({0, 1}).pixels);
  unlabeled_ = 255;
  EXPECT_EQ(classes(), gray({0, 255}).pixels);
  EXPECT_THAT(decide().notes,
              ElementsAre("warning: no training mask has a pixel of 1 of 2 classes: class 1"));
}

TEST_F(MaskSet, BothSplitsDecide) {
  put(encode_png(gray({0, 255})), encode_png(gray({0, 1, 2})));
  EXPECT_THAT(decide(3).class_numbers, ElementsAre(0, 1, 2));
  EXPECT_THAT(decide(3).notes,
              ElementsAre("warning: no training mask has a pixel of 2 of 3 classes: class 1, class 2"));
  // Without a number of classes the values tell it.
  EXPECT_THAT(decide(0).class_names, ElementsAre("class 0", "class 1", "class 2"));
}

TEST_F(MaskSet, AVoidClassIsNamedWithItsKey) {
  put(encode_png(gray({0, 1, 2, 3})), encode_png(gray({0, 1})));
  EXPECT_THAT(
      error_of([&] { decide(3); }),
      AllOf(HasSubstr("the masks have the values 0, 1, 2, 3, but there are 3 classes (3 first occurs in "),
            HasSubstr("train/masks/1.png"), HasSubstr("set data.unlabeled=3"),
            HasSubstr("model.num_classes=4")));
  unlabeled_ = 3;
  EXPECT_EQ(classes(3), gray({0, 1, 2, 255}).pixels);
  unlabeled_ = kUnlabeledAuto;
  put(encode_png(gray({0, 1, 2, 7, 9})), encode_png(gray({0, 1})));
  EXPECT_THAT(error_of([&] { decide(3); }), HasSubstr("data.class_numbers=[0,1,2]"));
}

TEST_F(MaskSet, ColorsWithEqualChannelsAreNumbers) {
  Image colored = convert(gray({0, 255}), 3);
  put(encode_png(colored), encode_png(gray({0, 255})));
  EXPECT_EQ(classes(), gray({0, 1}).pixels);
  // A table of grays as colors says which is which.
  put_file(folder_.path() / "classes.csv", "cell,255,255,255\nground,0,0,0\n");
  EXPECT_EQ(classes(), gray({1, 0}).pixels);
  put(encode_png(gray({0, 255})), encode_png(gray({0, 255})));
  EXPECT_EQ(classes(), gray({1, 0}).pixels);
}

TEST_F(MaskSet, LossyMasksTakeTheNearest) {
  Image noisy{.height = kMaskSide, .width = kMaskSide, .channels = 1};
  for (int64_t i = 0; i < kMaskSide * kMaskSide; ++i)
    noisy.pixels.push_back(static_cast<uint8_t>(i % 4 == 3 ? i % 16 + (i > 32 ? 235 : 0) : i > 32 ? 255 : 0));
  noisy.pixels[5] = 130;
  for (int64_t i = 32; i < 64; ++i) noisy.pixels.push_back(0);
  noisy.height += 4;
  for (size_t i = 64; i < 96; ++i) noisy.pixels[i] = static_cast<uint8_t>(i - 64);
  put(encode_png(noisy), encode_png(gray({0, 255})));
  const MaskDecision decision = decide();
  EXPECT_THAT(decision.class_numbers, ElementsAre(0, 255));
  EXPECT_THAT(decision.notes, ElementsAre(AllOf(HasSubstr("up to 32"), HasSubstr("unlabeled"))));
  const std::vector<uint8_t> made = classes();
  EXPECT_EQ(made[7], 0);
  EXPECT_EQ(made[5], kUnlabeled);
  EXPECT_EQ(made[63], 1);
}

TEST_F(MaskSet, ColorsOffTheTableAreTakenByDistance) {
  put_file(folder_.path() / "classes.csv", "road,128,64,128\nsky,70,130,180\n");
  Image mask{.height = kMaskSide, .width = kMaskSide, .channels = 3};
  for (int64_t i = 0; i < kMaskSide * kMaskSide; ++i) {
    const std::array<uint8_t, 3> color =
        i < 32 ? std::array<uint8_t, 3>{128, 64, 128} : std::array<uint8_t, 3>{70, 130, 180};
    for (const uint8_t value : color) mask.pixels.push_back(static_cast<uint8_t>(value + i % 3));
  }
  put(encode_png(mask), encode_png(mask));
  EXPECT_THAT(decide().notes, ElementsAre(AllOf(HasSubstr("distance of 32"), HasSubstr("65.62%"))));
  EXPECT_EQ(classes(), gray({0, 1}).pixels);
  for (size_t i = 0; i < 12; ++i) mask.pixels[i] = 250;
  put(encode_png(mask), encode_png(mask));
  EXPECT_THAT(error_of([&] { decide(); }),
              AllOf(HasSubstr("6.25% of the pixels"), HasSubstr("250,250,250"), HasSubstr("classes.csv")));
}

TEST_F(MaskSet, JpegMasksAreRead) {
  const std::string jpeg = encode_jpeg(gray({0, 255}));
  put(jpeg, jpeg, ".jpg");
  EXPECT_EQ(classes(), gray({0, 1}).pixels);
}

TEST(MaskPairs, SuffixesAndFoldersOfKnownSets) {
  const TemporaryFolder folder;
  const auto expect_pair = [&](const std::string& image, const std::string& mask, int64_t num_classes) {
    put_file(folder.path() / image, encode_png(speckled(kMaskSide, kMaskSide, 3)));
    put_file(folder.path() / mask, encode_png(gray({0, 1})));
    Image read, of_image;
    const auto masks = open_masks({.kind = "masks", .path = folder.path(), .num_classes = num_classes});
    ASSERT_EQ(masks->size(), 1);
    masks->read(0, of_image, read);
    EXPECT_EQ(read.pixels, gray({0, 1}).pixels) << mask;
    for (const fs::directory_entry& entry : fs::directory_iterator(folder.path())) fs::remove_all(entry);
  };
  // Cityscapes; instances and colors are not read.
  put_file(folder.path() / "gtFine/train/aachen/a_1_gtFine_color.png", "no mask");
  put_file(folder.path() / "gtFine/train/aachen/a_1_gtFine_instanceIds.png", "no mask");
  expect_pair("leftImg8bit/train/aachen/a_1_leftImg8bit.png", "gtFine/train/aachen/a_1_gtFine_labelIds.png",
              2);
  // Oxford-IIIT Pets, whose lists have more after the name.
  put_file(folder.path() / "annotations/trainval.txt", "#Image CLASS-ID\nCat_1 1 1 1\n");
  expect_pair("images/Cat_1.png", "annotations/trimaps/Cat_1.png", 2);
  // Masks in the folder of the images, as Roboflow has them, with its table.
  put_file(folder.path() / "train/_classes.csv", "Pixel Value, Class\n0, background\n1, cat\n");
  expect_pair("train/x.png", "train/x_mask.png", 0);
  expect_pair("train/5_sat.png", "train/5_mask.png", 2);
}

}  // namespace
}  // namespace hearth::data
