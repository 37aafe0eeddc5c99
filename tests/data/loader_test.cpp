#include "data/loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <set>
#include <vector>

#include "base/error.h"
#include "data/image_rows.h"

namespace hearth::data {
namespace {

/// Generated images and how they become rows.
struct Images {
  std::unique_ptr<Dataset> dataset;
  ImageRows rows{*dataset, {.augment = {.crop_padding = 2, .flip = true, .jitter = 0.2F}}};
};

std::unique_ptr<Images> shapes(int64_t count, int64_t side = 12) {
  auto dataset = open_dataset({.kind = "shapes", .image_size = side, .count = count, .seed = 3});
  return std::make_unique<Images>(Images{std::move(dataset)});
}

int64_t values_of(const Images& images) {
  return images.dataset->image_size().num_pixels() * images.dataset->channels();
}

LoaderOptions options_for(int64_t batch, int threads) {
  return {.batch = batch, .seed = 11, .num_threads = threads};
}

struct Kept {
  std::vector<float> images;
  std::vector<int32_t> labels;
  std::vector<int64_t> samples;
  int64_t epoch = 0;
  bool operator==(const Kept&) const = default;
};

Kept keep(const Batch& batch, int64_t values) {
  const float* images = ImageRows::images(batch);
  const int32_t* labels = ImageRows::labels(batch);
  return {.images = {images, images + batch.count * values},
          .labels = {labels, labels + batch.count},
          .samples = {batch.indices, batch.indices + batch.count},
          .epoch = batch.epoch};
}

std::vector<Kept> collect(Loader& loader, const Images& dataset, int64_t num_batches) {
  std::vector<Kept> kept;
  for (int64_t i = 0; i < num_batches; ++i) kept.push_back(keep(loader.next(), values_of(dataset)));
  return kept;
}

TEST(Loader, SharesDivideTheBatchesOfEachEpoch) {
  const auto dataset = shapes(53);
  constexpr int64_t kBatches = 8, kGroup = 6;
  Loader all(dataset->rows, options_for(7, 1));
  const std::vector<Kept> whole = collect(all, *dataset, 3 * kBatches);
  for (const int64_t width : {1, 2, 3}) {
    for (int64_t first = 0; first < kGroup; first += width) {
      LoaderOptions options = options_for(7, 2);
      options.share = {.group = kGroup, .first = first, .count = width};
      std::vector<Kept> wanted;
      for (int64_t i = 0; i < std::ssize(whole); ++i) {
        const int64_t number = i % kBatches % kGroup;
        if (number >= first && number < first + width) wanted.push_back(whole[static_cast<size_t>(i)]);
      }
      Loader share(dataset->rows, options);
      EXPECT_EQ(collect(share, *dataset, std::ssize(wanted)), wanted) << first << " of " << width;
    }
  }
}

TEST(Loader, EverySampleOncePerEpoch) {
  const auto dataset = shapes(53);
  for (int threads = 0; threads <= 4; ++threads) {
    for (const int64_t batch : {1, 7, 32, 53, 100}) {
      Loader loader(dataset->rows, options_for(batch, threads));
      for (int64_t epoch = 0; epoch < 3; ++epoch) {
        std::multiset<int64_t> seen;
        for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
          const Batch& got = loader.next();
          EXPECT_EQ(got.epoch, epoch);
          seen.insert(got.indices, got.indices + got.count);
        }
        EXPECT_EQ(seen.size(), 53U);
        EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 53U)
            << threads << " threads, " << batch;
      }
    }
  }
}

TEST(Loader, ASmallLastBatchCanBeLeftOut) {
  const auto dataset = shapes(53);
  for (const auto& [min_batch, wanted] : {std::pair(4, 53), std::pair(5, 49), std::pair(7, 49)}) {
    LoaderOptions options = options_for(7, 2);
    options.min_batch = min_batch;
    EXPECT_EQ(epoch_rows(53, options), wanted);
    Loader loader(dataset->rows, options);
    std::set<int64_t> seen;
    for (int64_t epoch = 0; epoch < 6; ++epoch) {
      std::set<int64_t> here;
      for (int64_t taken = 0; taken < wanted;) {
        const Batch& batch = loader.next();
        EXPECT_EQ(batch.epoch, epoch);
        here.insert(batch.indices, batch.indices + batch.count);
        taken += batch.count;
      }
      EXPECT_EQ(std::ssize(here), wanted);
      seen.insert(here.begin(), here.end());
    }
    // No row is left out of every epoch.
    EXPECT_EQ(std::ssize(seen), 53);
  }
  LoaderOptions options = options_for(64, 0);
  options.min_batch = 64;
  EXPECT_EQ(epoch_rows(53, options), 53);
}

TEST(Loader, SameBitsWhateverTheThreads) {
  const auto dataset = shapes(41);
  Loader first(dataset->rows, options_for(8, 0));
  const auto expected = collect(first, *dataset, 14);
  for (int threads = 1; threads <= 4; ++threads) {
    Loader loader(dataset->rows, options_for(8, threads));
    EXPECT_EQ(collect(loader, *dataset, 14), expected) << threads;
  }
}

TEST(Loader, OrderDoesNotDependOnTheBatch) {
  const auto dataset = shapes(30);
  Loader one(dataset->rows, options_for(1, 1));
  Loader ten(dataset->rows, options_for(10, 2));
  for (int i = 0; i < 6; ++i) {
    const Kept big = keep(ten.next(), values_of(*dataset));
    for (int row = 0; row < 10; ++row) EXPECT_EQ(*one.next().indices, big.samples[row]);
  }
}

TEST(Loader, EpochsDifferInOrderAndInAugmentation) {
  const auto dataset = shapes(30);
  Loader loader(dataset->rows, options_for(30, 1));
  const auto epochs = collect(loader, *dataset, 2);
  EXPECT_NE(epochs[0].samples, epochs[1].samples);
  const int64_t values = values_of(*dataset);
  const auto at = std::find(epochs[1].samples.begin(), epochs[1].samples.end(), epochs[0].samples[0]);
  const float* again = epochs[1].images.data() + (at - epochs[1].samples.begin()) * values;
  EXPECT_NE(std::memcmp(epochs[0].images.data(), again, static_cast<size_t>(values) * sizeof(float)), 0);
}

TEST(Loader, ResumesFromEveryPosition) {
  const auto dataset = shapes(23);
  constexpr int64_t kBatches = 12;
  Loader whole(dataset->rows, options_for(5, 2));
  std::vector<LoaderPosition> positions;
  std::vector<Kept> expected;
  for (int64_t i = 0; i < kBatches; ++i) {
    positions.push_back(whole.position());
    expected.push_back(keep(whole.next(), values_of(*dataset)));
  }
  EXPECT_EQ(positions[5], (LoaderPosition{.seed = 11, .epoch = 1, .sample = 0, .total = 23}));
  for (int64_t from = 0; from < kBatches; ++from) {
    Loader resumed(dataset->rows, options_for(5, 1 + static_cast<int>(from % 3)), positions[from]);
    const auto rest = collect(resumed, *dataset, kBatches - from);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), expected.begin() + from)) << from;
  }
}

std::vector<int64_t> samples_of(const std::vector<Kept>& batches) {
  std::vector<int64_t> all;
  for (const Kept& batch : batches) all.insert(all.end(), batch.samples.begin(), batch.samples.end());
  return all;
}

TEST(Loader, AChangedOrderStillHasEverySampleOncePerEpoch) {
  const auto dataset = shapes(53);
  for (const bool shuffle : {true, false}) {
    LoaderOptions options = options_for(7, 1);
    options.shuffle = shuffle;
    Loader unchanged(dataset->rows, options);
    const std::vector<int64_t> before = samples_of(collect(unchanged, *dataset, 16));
    LoaderPosition position{.seed = options.seed};
    std::vector<int64_t> seen;
    for (int64_t i = 0; i < LoaderPosition::kMaxChanges; ++i) {
      ASSERT_TRUE(change_order(position));
      Loader loader(dataset->rows, options, position);
      const std::vector<int64_t> part = samples_of(collect(loader, *dataset, 2));
      EXPECT_NE(part, std::vector(before.begin() + 14 * i, before.begin() + 14 * (i + 1))) << i;
      seen.insert(seen.end(), part.begin(), part.end());
      position = loader.position();
    }
    EXPECT_EQ(position.epoch, 1);
    EXPECT_EQ(position.num_changes_here, 0);
    EXPECT_EQ(seen.size(), 53U);
    EXPECT_EQ(std::set<int64_t>(seen.begin(), seen.end()).size(), 53U);
    Loader loader(dataset->rows, options, position);
    const std::vector<int64_t> second = samples_of(collect(loader, *dataset, 8));
    EXPECT_EQ(std::set<int64_t>(second.begin(), second.end()).size(), 53U);
    EXPECT_EQ(second == std::vector(before.begin() + 53, before.end()), !shuffle);
  }
}

TEST(Loader, AnEpochsOrderChangesAFewTimes) {
  LoaderPosition position{.sample = 3};
  for (int64_t i = 0; i < LoaderPosition::kMaxChanges; ++i) EXPECT_TRUE(change_order(position));
  const LoaderPosition last = position;
  EXPECT_FALSE(change_order(position));
  EXPECT_EQ(position, last);
  position = advanced(position, 7, 10);
  EXPECT_TRUE(change_order(position));
}

TEST(Loader, ABatchOutlivesTheFollowingCall) {
  const auto dataset = shapes(64);
  Loader loader(dataset->rows, options_for(4, 3));
  for (int i = 0; i < 50; ++i) {
    const Batch& batch = loader.next();
    const Kept before = keep(batch, values_of(*dataset));
    loader.next();
    EXPECT_EQ(keep(batch, values_of(*dataset)), before);
  }
}

TEST(Loader, WithoutShuffleKeepsTheOrder) {
  const auto dataset = shapes(10);
  Loader loader(dataset->rows, {.batch = 4, .shuffle = false});
  EXPECT_EQ(keep(loader.next(), 0).samples, (std::vector<int64_t>{0, 1, 2, 3}));
  loader.next();
  EXPECT_EQ(keep(loader.next(), 0).samples, (std::vector<int64_t>{8, 9}));
  EXPECT_EQ(loader.next().epoch, 1);
}

TEST(Loader, RefusesAPositionOfAnotherRun) {
  const auto dataset = shapes(10);
  EXPECT_THROW(Loader(dataset->rows, options_for(4, 1), {.seed = 12}), UserError);
  EXPECT_THROW(Loader(dataset->rows, options_for(4, 1), {.seed = 11, .sample = 10}), UserError);
  EXPECT_THROW(Loader(dataset->rows, options_for(0, 1)), UserError);
}

/// A dataset whose samples 5 and 3 cannot be read.
class Broken : public Dataset {
 public:
  Broken() {
    image_size_ = 2;
    channels_ = 1;
    class_names_ = {"only"};
  }
  int64_t size() const override { return 8; }
  void read(int64_t index, uint8_t* pixels, int32_t* label) const override {
    if (index == 5 || index == 3) user_error("sample {} is broken", index);
    std::memset(pixels, static_cast<int>(index), 4);
    *label = 0;
  }
};

TEST(Loader, ErrorsOfThreadsComeOutOfNext) {
  const Broken broken;
  const ImageRows dataset(broken, {});
  for (int threads = 0; threads <= 4; ++threads) {
    Loader loader(dataset, {.batch = 2, .shuffle = false, .num_threads = threads});
    EXPECT_EQ(loader.next().count, 2);
    for (int again = 0; again < 2; ++again) {
      try {
        loader.next();
        FAIL() << "no error";
      } catch (const UserError& error) {
        EXPECT_STREQ(error.what(), "sample 3 is broken");
      }
    }
    EXPECT_EQ(loader.position().sample, 2);
  }
}

}  // namespace
}  // namespace hearth::data
