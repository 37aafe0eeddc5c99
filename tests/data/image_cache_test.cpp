#include "data/image_cache.h"

#include <gtest/gtest.h>

#include <thread>

#include "data/dataset.h"
#include "data/masks/masks.h"
#include "files.h"

namespace hearth::data {
namespace {

constexpr int64_t kStoredHeight = 14, kStoredWidth = 11, kResized = 9;
constexpr int64_t kCount = 6;

Image mask_of(int64_t number) {
  Image mask{.height = kStoredHeight, .width = kStoredWidth, .channels = 1};
  for (int64_t i = 0; i < kStoredHeight * kStoredWidth; ++i)
    mask.pixels.push_back(static_cast<uint8_t>((i + number) % 3));
  return mask;
}

/// Images in two classes, and the same with masks.
void put_images(const fs::path& root) {
  for (int64_t i = 0; i < kCount; ++i) {
    const std::string name = std::to_string(i) + ".png";
    Image picture = speckled(kStoredHeight, kStoredWidth, 3);
    picture.pixels[0] = static_cast<uint8_t>(i);
    put_file(root / "train" / (i % 2 == 0 ? "cat" : "dog") / name, encode_png(picture));
    put_file(root / "set/train/images" / name, encode_png(picture));
    put_file(root / "set/train/masks" / name, encode_png(mask_of(i)));
  }
}

std::vector<std::vector<uint8_t>> read_all(const Dataset& dataset) {
  std::vector<std::vector<uint8_t>> all;
  for (int64_t i = 0; i < dataset.size(); ++i) {
    all.emplace_back(static_cast<size_t>(kResized * kResized * 3 + 1));
    int32_t label = 0;
    dataset.read(i, all.back().data(), &label);
    all.back().back() = static_cast<uint8_t>(label);
  }
  return all;
}

std::vector<std::vector<uint8_t>> read_all(const MaskedImages& images) {
  std::vector<std::vector<uint8_t>> all;
  Image image, mask, alone;
  for (int64_t i = 0; i < images.size(); ++i) {
    images.read(i, image, mask);
    EXPECT_EQ(mask.size(), Extent(kStoredHeight, kStoredWidth));
    EXPECT_EQ(image.size(), Extent(kStoredHeight, kStoredWidth));
    all.push_back(image.pixels);
    all.back().insert(all.back().end(), mask.pixels.begin(), mask.pixels.end());
    images.read_mask(i, alone);
    EXPECT_EQ(alone.pixels, mask.pixels);
  }
  return all;
}

/// What is read on four threads at once, three times over.
template <typename Set>
void expect_all(const Set& set, const std::vector<std::vector<uint8_t>>& wanted) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int again = 0; again < 3; ++again) EXPECT_EQ(read_all(set), wanted);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class Keeping : public testing::Test {
 protected:
  Keeping() { put_images(folder_.path()); }
  DatasetOptions classes(std::shared_ptr<ImageCacheBudget> budget) const {
    return {
        .kind = "folder", .path = folder_.path(), .image_size = kResized, .cache_budget = std::move(budget)};
  }
  MaskOptions masks(std::shared_ptr<ImageCacheBudget> budget) const {
    return {
        .kind = "masks", .path = folder_.path() / "set", .num_classes = 3, .cache_budget = std::move(budget)};
  }
  TemporaryFolder folder_;
};

TEST_F(Keeping, ChangesNoPixelWhateverTheBudget) {
  const auto pictures = read_all(*open_dataset(classes(nullptr)));
  const auto masked = read_all(*open_masks(masks(nullptr)));
  for (const int64_t bytes : {1, 700, 1500, 100000}) {
    expect_all(*open_dataset(classes(std::make_shared<ImageCacheBudget>(bytes))), pictures);
    expect_all(*open_masks(masks(std::make_shared<ImageCacheBudget>(bytes))), masked);
  }
}

TEST_F(Keeping, AFolderTakesNoMoreThanItsBudget) {
  const int64_t one = static_cast<int64_t>(sizeof(Image)) + kResized * kResized * 3;
  for (const int64_t bytes : {one - 1, one, 4 * one - 1, kCount * one, 100 * one}) {
    const auto budget = std::make_shared<ImageCacheBudget>(bytes);
    const auto dataset = open_dataset(classes(budget));
    expect_all(*dataset, read_all(*dataset));
    EXPECT_EQ(budget->used(), std::min(bytes / one, dataset->size()) * one) << bytes;
  }
}

TEST_F(Keeping, ImagesAndMasksShareABudget) {
  const int64_t both = 2 * static_cast<int64_t>(sizeof(Image)) + kStoredHeight * kStoredWidth * 4;
  const auto budget = std::make_shared<ImageCacheBudget>(2 * both);
  const auto first = open_masks(masks(budget)), second = open_masks(masks(budget));
  read_all(*first);
  EXPECT_EQ(budget->used(), 2 * both);
  read_all(*second);
  EXPECT_EQ(budget->used(), 2 * both);
}

TEST_F(Keeping, WhatIsKeptIsNotReadAgain) {
  const auto dataset = open_dataset(classes(std::make_shared<ImageCacheBudget>(1 << 20)));
  const auto images = open_masks(masks(std::make_shared<ImageCacheBudget>(1 << 20)));
  const auto pictures = read_all(*dataset), masked = read_all(*images);
  fs::remove_all(folder_.path() / "train");
  fs::remove_all(folder_.path() / "set");
  EXPECT_EQ(read_all(*dataset), pictures);
  EXPECT_EQ(read_all(*images), masked);
}

}  // namespace
}  // namespace hearth::data
