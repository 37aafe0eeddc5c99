#include "data/class_balance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "data/loader.h"

namespace hearth::data {
namespace {

constexpr int64_t kRows = 61;

/// Classes 0, 3 and 7 of 50, 8 and 3 rows, mixed.
int32_t label_of(int64_t row) { return row % 20 == 19 ? 7 : row % 7 == 3 ? 3 : 0; }

std::vector<int32_t> labels() {
  std::vector<int32_t> made;
  for (int64_t row = 0; row < kRows; ++row) made.push_back(label_of(row));
  return made;
}

/// What a row is made from.
struct Made {
  uint64_t key = 0;
  int64_t index = 0;
  auto operator<=>(const Made&) const = default;
};

TEST(ClassBalance, OfSeveralClassesTheRarestCounts) {
  const std::vector<std::vector<int32_t>> rows = {{0, 2}, {0, 1}, {0}, {}, {1, 2}, {0, 1, 2}, {1}};
  EXPECT_EQ(rarest_classes(rows), (std::vector<int32_t>{2, 0, 0, -1, 2, 2, 1}));
}

class Rows : public RowSource {
 public:
  int64_t num_rows() const override { return kRows; }
  ArrayFormats formats(int64_t) const override { return {{{"rows", sizeof(Made)}}}; }
  void make(const Row& row, const std::array<std::byte*, kMaxArrays>& arrays) const override {
    *reinterpret_cast<Made*>(arrays[0]) = {row.key, row.index};
  }
};

class Balanced : public testing::Test {
 protected:
  std::vector<Made> next(Loader& loader) const {
    const Batch& batch = loader.next();
    return {batch.array<Made>(0), batch.array<Made>(0) + batch.count};
  }
  std::vector<Made> epoch(Loader& loader) const {
    std::vector<Made> made;
    for (int64_t i = 0; i < loader.batches_per_epoch(); ++i)
      for (const Made& row : next(loader)) made.push_back(row);
    return made;
  }
  LoaderOptions options(int64_t batch, int threads) const {
    return {.batch = batch, .seed = 5, .balance = &balance_, .num_threads = threads};
  }

  const std::vector<int32_t> labels_ = labels();
  const ClassBalance balance_{labels_};
  Rows rows_;
};

TEST_F(Balanced, ClassesAndTheirRowsComeEquallyOften) {
  Loader loader(rows_, options(8, 1));
  std::map<int32_t, int64_t> in_all;
  for (int number = 0; number < 60; ++number) {
    std::map<int32_t, int64_t> of_class;
    std::map<int64_t, int64_t> of_row;
    for (const Made& made : epoch(loader)) {
      ++of_class[label_of(made.index)];
      ++in_all[label_of(made.index)];
      ++of_row[made.index];
    }
    for (const auto& [label, count] : of_class) EXPECT_TRUE(count == 20 || count == 21) << label;
    for (int64_t row = 0; row < kRows; ++row) {
      const auto size = std::ranges::count(labels_, label_of(row));
      const int64_t count = of_class[label_of(row)];
      EXPECT_GE(of_row[row], count / size) << row;
      EXPECT_LE(of_row[row], (count + size - 1) / size) << row;
    }
  }
  // Nor is it always the same class that comes once more.
  for (const auto& [label, count] : in_all)
    EXPECT_NEAR(static_cast<double>(count), 60 * 61.0 / 3, 15) << label;
}

TEST_F(Balanced, EveryRowComesInSomeEpoch) {
  Loader loader(rows_, options(8, 1));
  std::set<int64_t> seen, first;
  for (int number = 0; number < 12; ++number) {
    for (const Made& made : epoch(loader)) seen.insert(made.index);
    if (number == 0) first = seen;
  }
  EXPECT_LT(first.size(), 35U);
  EXPECT_EQ(seen.size(), static_cast<size_t>(kRows));
}

TEST_F(Balanced, ARowThatComesAgainIsChangedAnew) {
  Loader loader(rows_, options(8, 1));
  const std::vector<Made> all = epoch(loader);
  EXPECT_EQ(std::set<Made>(all.begin(), all.end()).size(), all.size());
}

TEST_F(Balanced, TheOrderIsThatOfSeedAndEpochAlone) {
  Loader loader(rows_, options(1, 0));
  std::vector<Made> expected = epoch(loader);
  for (const Made& made : epoch(loader)) expected.push_back(made);
  for (int threads = 0; threads <= 4; ++threads) {
    for (const int64_t batch : {3, 10, 61}) {
      Loader other(rows_, options(batch, threads));
      std::vector<Made> found = epoch(other);
      for (const Made& made : epoch(other)) found.push_back(made);
      EXPECT_EQ(found, expected) << threads << " threads, " << batch;
    }
  }
  LoaderOptions another = options(1, 0);
  another.seed = 6;
  Loader reseeded(rows_, another);
  EXPECT_NE(epoch(reseeded), std::vector<Made>(expected.begin(), expected.begin() + kRows));
}

TEST_F(Balanced, SharesDivideTheBatchesAndEveryPositionResumes) {
  Loader whole(rows_, options(5, 2));
  LoaderOptions second = options(5, 1);
  second.share = {.group = 2, .first = 1};
  Loader share(rows_, second);
  for (int64_t i = 0; i < 26; ++i) {
    const LoaderPosition position = whole.position();
    const std::vector<Made> batch = next(whole);
    Loader resumed(rows_, options(5, 1), position);
    EXPECT_EQ(next(resumed), batch) << i;
    if (i % 13 % 2 == 1) {
      EXPECT_EQ(next(share), batch) << i;
    }
  }
}

TEST_F(Balanced, AChangedOrderKeepsWhatIsLeft) {
  Loader plain(rows_, options(1, 0));
  std::vector<Made> expected = epoch(plain);
  LoaderPosition position{.seed = 5, .sample = 20, .total = 20};
  ASSERT_TRUE(change_order(position));
  Loader changed(rows_, options(1, 0), position);
  std::vector<Made> left;
  for (int64_t i = 20; i < kRows; ++i) left.push_back(next(changed)[0]);
  EXPECT_FALSE(std::equal(left.begin(), left.end(), expected.begin() + 20));
  std::sort(expected.begin() + 20, expected.end());
  std::ranges::sort(left);
  EXPECT_TRUE(std::equal(left.begin(), left.end(), expected.begin() + 20));
}

}  // namespace
}  // namespace hearth::data
