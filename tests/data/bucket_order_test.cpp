#include "data/captions/bucket_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/loader.h"
#include "files.h"

namespace hearth::data {
namespace {

using testing::ElementsAre;

/// Rows 0 to 28 of lengths 5, 9 and 7: 17, 10 and 2 of them.
std::vector<int64_t> bucket_lengths() {
  std::vector<int64_t> lengths(29, 5);
  for (const size_t row : {1, 2, 5, 8, 13, 14, 20, 21, 22, 28}) lengths[row] = 9;
  for (const size_t row : {0, 17}) lengths[row] = 7;
  return lengths;
}

/// What a row is made from, and its length as the loader says it.
struct BucketRow {
  uint64_t key = 0;
  int64_t index = 0;
  int64_t length = 0;
  auto operator<=>(const BucketRow&) const = default;
};

class BucketRows : public RowSource {
 public:
  int64_t num_rows() const override { return std::ssize(bucket_lengths()); }
  ArrayFormats formats(int64_t) const override { return {{{"rows", sizeof(BucketRow)}}}; }
  void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const override {
    *reinterpret_cast<BucketRow*>(arrays[0]) = {row.key, row.index, row.length};
  }
};

class InBuckets : public testing::Test {
 protected:
  using Rows = std::vector<BucketRow>;

  LoaderOptions options(const BucketOrder& order, int threads = 1) const {
    return {.batch = order.batch(), .seed = 5, .buckets = &order, .num_threads = threads};
  }
  /// A batch, whose rows have to be of its length.
  Rows next(Loader& loader) const {
    const Batch& batch = loader.next();
    Rows rows(batch.array<BucketRow>(0), batch.array<BucketRow>(0) + batch.count);
    for (int64_t i = 0; i < batch.count; ++i) {
      const BucketRow& row = rows[static_cast<size_t>(i)];
      EXPECT_EQ(row.index, batch.indices[i]);
      EXPECT_EQ(row.length, batch.row_length);
      EXPECT_EQ(row.length, lengths_[static_cast<size_t>(row.index)]);
    }
    return rows;
  }
  Rows epoch(Loader& loader) const {
    Rows all;
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i) {
      for (const BucketRow& row : next(loader)) all.push_back(row);
    }
    return all;
  }

  const std::vector<int64_t> lengths_ = bucket_lengths();
  BucketRows rows_;
};

TEST_F(InBuckets, EveryRowComesAndBatchesAreOfOneLength) {
  for (const int64_t batch : {1, 2, 3, 4, 29, 40}) {
    const BucketOrder order(lengths_, batch);
    EXPECT_THAT(order.lengths(), ElementsAre(9, 7, 5));
    Loader loader(rows_, options(order));
    for (int number = 0; number < 5; ++number) {
      const Rows all = epoch(loader);
      EXPECT_EQ(std::ssize(all), order.num_places());
      EXPECT_EQ(std::set<BucketRow>(all.begin(), all.end()).size(), all.size()) << "a row is made anew";
      std::map<int64_t, int64_t> times;
      for (const BucketRow& row : all) ++times[row.index];
      EXPECT_EQ(times.size(), lengths_.size());
      for (const auto& [row, count] : times) {
        const auto size = std::ranges::count(lengths_, lengths_[static_cast<size_t>(row)]);
        const int64_t places = (size + batch - 1) / batch * batch;
        EXPECT_TRUE(count == places / size || count == (places + size - 1) / size) << row;
      }
    }
  }
  EXPECT_EQ(BucketOrder(lengths_, 1).num_places(), 29);
  EXPECT_EQ(BucketOrder(lengths_, 4).num_places(), 12 + 4 + 20);
}

TEST_F(InBuckets, EpochsDifferInBatchesInRowsAndInWhatComesAgain) {
  const BucketOrder order(lengths_, 4);
  Loader loader(rows_, options(order));
  std::set<std::vector<int64_t>> length_orders;
  std::set<std::set<int64_t>> again;
  for (int number = 0; number < 4; ++number) {
    std::vector<int64_t> in_order;
    std::set<int64_t> seen, twice;
    for (const BucketRow& row : epoch(loader)) {
      in_order.push_back(row.length);
      if (!seen.insert(row.index).second && row.length == 5) twice.insert(row.index);
    }
    EXPECT_EQ(twice.size(), 3U);
    length_orders.insert(in_order);
    again.insert(twice);
  }
  EXPECT_EQ(length_orders.size(), 4U);
  EXPECT_GT(again.size(), 1U);
}

TEST_F(InBuckets, WithoutShufflingTheLongestComeFirst) {
  const BucketOrder order(lengths_, 4);
  LoaderOptions plain = options(order);
  plain.shuffle = false;
  Loader loader(rows_, plain);
  std::vector<int64_t> indices;
  for (const BucketRow& row : epoch(loader)) indices.push_back(row.index);
  EXPECT_THAT(indices, ElementsAre(1, 2, 5, 8, 13, 14, 20, 21, 22, 28, 1, 2, 0, 17, 0, 17, 3, 4, 6, 7, 9, 10,
                                   11, 12, 15, 16, 18, 19, 23, 24, 25, 26, 27, 3, 4, 6));
}

TEST_F(InBuckets, TheSameOnAnyThreadsAndSharesAndFromEveryPosition) {
  const BucketOrder order(lengths_, 3);
  Loader whole(rows_, options(order, 0));
  std::vector<LoaderPosition> positions;
  std::vector<Rows> batches;
  for (int64_t i = 0; i < 3 * whole.batches_per_epoch(); ++i) {
    positions.push_back(whole.position());
    batches.push_back(next(whole));
  }
  for (int threads = 1; threads <= 4; ++threads) {
    Loader loader(rows_, options(order, threads));
    for (const Rows& expected : batches) EXPECT_EQ(next(loader), expected) << threads;
  }
  for (size_t from = 0; from < positions.size(); ++from) {
    Loader resumed(rows_, options(order, 2), positions[from]);
    for (size_t i = from; i < std::min(from + 4, batches.size()); ++i) EXPECT_EQ(next(resumed), batches[i]);
  }
  const auto per_epoch = static_cast<size_t>(whole.batches_per_epoch());
  for (int64_t first = 0; first < 4; ++first) {
    LoaderOptions shared = options(order);
    shared.share = {.group = 4, .first = first};
    Loader share(rows_, shared);
    for (size_t i = 0; i < batches.size(); ++i) {
      if (i % per_epoch % 4 != static_cast<size_t>(first)) continue;
      EXPECT_EQ(next(share), batches[i]) << first;
    }
  }
}

TEST_F(InBuckets, AChangedOrderKeepsBatchesAndWhatIsLeft) {
  const BucketOrder order(lengths_, 3);
  Loader plain(rows_, options(order));
  Rows expected = epoch(plain);
  LoaderPosition position{.seed = 5};
  Rows seen;
  for (int64_t i = 0; i < LoaderPosition::kMaxChanges; ++i) {
    ASSERT_TRUE(change_order(position));
    Loader changed(rows_, options(order), position);
    for (int64_t k = 0; k < 3 && changed.position().epoch == 0; ++k) {
      for (const BucketRow& row : next(changed)) seen.push_back(row);
    }
    position = changed.position();
  }
  ASSERT_EQ(seen.size(), expected.size());
  EXPECT_NE(seen, expected);
  std::ranges::sort(seen);
  std::ranges::sort(expected);
  EXPECT_EQ(seen, expected);
}

TEST_F(InBuckets, ABatchIsNotDivided) {
  const BucketOrder order(lengths_, 4);
  EXPECT_EQ(error_of([&] { Loader(rows_, options(order), {.seed = 5, .sample = 6}); }),
            "6 images of this epoch have been read, which is not a multiple of the micro-batch 4; "
            "resume with the previous train.batch");
}

}  // namespace
}  // namespace hearth::data
