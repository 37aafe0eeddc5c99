#include "tasks/diffuse/labeled_latents.h"

#include <gmock/gmock.h>

#include <set>

#include "base/error.h"
#include "data/chosen_images.h"
#include "tasks/progress_reporter.h"
#include "temporary_folder.h"

namespace hearth::tasks {
namespace {

using testing::ElementsAre;

/// Gray images of 8 x 8 pixels, of which number i is all i but for a column of 100 + i on the left.
class Marked : public data::Dataset {
 public:
  explicit Marked(int64_t count) : count_(count) {
    class_names_ = {"a", "b"};
    image_size_ = 8;
    channels_ = 1;
  }
  int64_t size() const override { return count_; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    for (int64_t i = 0; i < 64; ++i)
      pixels[i] = static_cast<uint8_t>(index + (i % 8 == 0 ? 100 : 0) + (index == changed ? 50 : 0));
    *label = static_cast<int32_t>(index % 2);
  }

  int64_t changed = -1;

 private:
  int64_t count_;
};

class Labeled : public testing::Test {
 protected:
  LabeledLatents open(const data::Dataset& images, bool flip, uint64_t coder = 1, Extent pixels = 16) const {
    return {images,
            {.pixels = pixels,
             .flip = flip,
             .format = {.channels = 2, .factor = 8, .patch = 1},
             .coder = coder,
             .cache = folder_.path()}};
  }
  /// Has images "coded" as their first and last pixel; stops with a failure after `most`.
  void fill(const LabeledLatents& latents, int64_t most = 100) {
    latents.make(
        [&](const data::Image& image) {
          sizes_.push_back(image.size());
          std::vector<float> made(8, image.pixels.front());
          std::fill(made.begin() + 4, made.end(), image.pixels.back());
          return made;
        },
        [&](int64_t done) {
          if (done == most) user_error("no current");
        });
  }
  static std::vector<float> read(const LabeledLatents& latents, int64_t index, uint64_t key = 0) {
    std::vector<float> made(8);
    latents.read(index, key, made);
    return {made.front(), made.back()};
  }

  const TemporaryFolder folder_;
  std::vector<Extent> sizes_;
};

TEST_F(Labeled, EachImageIsResizedAndCodedOnce) {
  const Marked images(3);
  const LabeledLatents latents = open(images, false);
  EXPECT_EQ(latents.num_missing(), 3);
  fill(latents);
  EXPECT_THAT(sizes_, ElementsAre(Extent(16), Extent(16), Extent(16)));
  EXPECT_EQ(latents.size(), 3);
  EXPECT_EQ(latents.channels(), 2);
  EXPECT_EQ(latents.extent(2), Extent(2));
  EXPECT_EQ(latents.label(1), 1);
  EXPECT_THAT(read(latents, 2), ElementsAre(102, 2));
  fill(open(images, false));
  EXPECT_EQ(sizes_.size(), 3U);
}

TEST_F(Labeled, MirroredOnesAreCodedTooAndHalfOfWhatIsRead) {
  const Marked images(3);
  fill(open(images, false));
  const LabeledLatents latents = open(images, true);
  EXPECT_EQ(latents.num_missing(), 3) << "the others are there";
  fill(latents);
  int64_t num_mirrored = 0;
  for (uint64_t key = 0; key < 100; ++key) {
    const bool mirrored = data::is_mirrored(key, 1);
    num_mirrored += mirrored ? 1 : 0;
    EXPECT_THAT(read(latents, 1, key), mirrored ? ElementsAre(1, 101) : ElementsAre(101, 1));
    EXPECT_THAT(read(open(images, false), 1, key), ElementsAre(101, 1));
  }
  EXPECT_GT(num_mirrored, 30);
  EXPECT_LT(num_mirrored, 70);
}

TEST_F(Labeled, WhatWasMadeStaysAndWhatChangedIsMadeAgain) {
  Marked images(4);
  EXPECT_THROW(fill(open(images, true), 5), UserError);
  EXPECT_EQ(open(images, true).num_missing(), 3);
  fill(open(images, true));
  EXPECT_EQ(sizes_.size(), 8U);
  images.changed = 2;
  EXPECT_EQ(open(images, true).num_missing(), 2);
  images.changed = -1;
  EXPECT_EQ(open(images, true, 2).num_missing(), 8) << "another autoencoder";
  EXPECT_EQ(open(images, true, 1, 8).num_missing(), 8) << "another size";
}

TEST_F(Labeled, ChosenImagesAreThoseOfTheWhole) {
  const Marked images(6);
  const data::ChosenImages chosen(images, {1, 4});
  fill(open(images, false));
  const LabeledLatents latents = open(chosen, false);
  EXPECT_EQ(latents.num_missing(), 0);
  EXPECT_THAT(read(latents, 1), ElementsAre(104, 4));
  EXPECT_EQ(latents.label(0), 1);
  EXPECT_EQ(latents.label(1), 0);
}

TEST(ProgressReporter, IsSaidNowAndThen) {
  std::vector<std::string> said;
  const auto say = [&](const std::string& text) { said.push_back(text); };
  ProgressReporter often(say, "encoding images", 400, 0), rarely(say, "encoding captions", 3, 1000);
  often(120);
  rarely(1);
  often(121);
  EXPECT_THAT(said, ElementsAre("encoding images: 120 of 400", "encoding images: 121 of 400"));
}

}  // namespace
}  // namespace hearth::tasks
