#include "text/packing.h"

#include <algorithm>
#include <fstream>
#include <numeric>

#include "expect_fault.h"
#include "temporary_folder.h"

namespace hearth::text {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const auto name_of = [](int64_t sample) { return fmt::format("f:{}", sample + 1); };

PackPlan plan(const std::vector<int64_t>& lengths, const PackOptions& options) {
  return plan_rows(lengths, options, name_of);
}

/// "SAMPLE[FIRST+LENGTH]" of each row.
std::vector<std::string> rows(const PackPlan& plan) {
  std::vector<std::string> texts;
  for (int64_t row = 0; row < plan.num_rows(); ++row) {
    std::string text;
    int64_t used = 0;
    for (const Placement& piece : plan.row(row)) {
      EXPECT_EQ(piece.row, row);
      EXPECT_EQ(piece.offset, used);
      used += piece.length;
      text += fmt::format("{}[{}+{}]", piece.sample, piece.first, piece.length);
    }
    EXPECT_LE(used, plan.row_length);
    texts.push_back(text);
  }
  return texts;
}

TEST(Packing, FirstFitDecreasing) {
  const PackPlan packed = plan({3, 8, 2, 0, 5, 2}, {.row_length = 8});
  EXPECT_THAT(rows(packed), ElementsAre("1[0+8]", "4[0+5]0[0+3]", "2[0+2]5[0+2]"));
  EXPECT_EQ(packed.num_tokens, 20);
  EXPECT_DOUBLE_EQ(packed.fill(), 20.0 / 24.0);
}

TEST(Packing, InOrder) {
  EXPECT_THAT(rows(plan({3, 5, 2, 7}, {.row_length = 8, .order = PackOrder::in_order})),
              ElementsAre("0[0+3]1[0+5]", "2[0+2]", "3[0+7]"));
}

TEST(Packing, Overlong) {
  const PackPlan cut = plan({3, 20}, {.row_length = 8});
  EXPECT_THAT(rows(cut), ElementsAre("1[0+8]", "0[0+3]"));
  EXPECT_EQ(cut.num_truncated, 1);
  EXPECT_THAT(rows(plan({3, 20}, {.row_length = 8, .overlong = Overlong::split})),
              ElementsAre("1[0+8]", "1[8+8]", "1[16+4]0[0+3]"));
  EXPECT_THAT(
      rows(plan({3, 20}, {.row_length = 8, .overlong = Overlong::split, .order = PackOrder::in_order})),
      ElementsAre("0[0+3]1[0+5]", "1[5+8]", "1[13+7]"));
  EXPECT_THAT(fault_of([] {
                plan({3, 20}, {.row_length = 8, .overlong = Overlong::refuse});
              }),
              HasSubstr("f:2: the sample has 20 tokens, more than data.context=8"));
}

TEST(Packing, OverlongSamplesAreLeftOut) {
  const PackPlan kept = plan({3, 9, 8}, {.row_length = 8, .overlong = Overlong::drop});
  EXPECT_THAT(rows(kept), ElementsAre("2[0+8]", "0[0+3]"));
  EXPECT_EQ(kept.num_dropped, 1);
  EXPECT_EQ(kept.num_tokens, 11);
}

TEST(Packing, ARowForEach) {
  EXPECT_THAT(rows(plan({3, 0, 2, 9}, {.row_length = 8, .order = PackOrder::alone})),
              ElementsAre("0[0+3]", "2[0+2]", "3[0+8]"));
}

TEST(Packing, EveryTokenOnceAndTight) {
  std::vector<int64_t> lengths;
  uint64_t state = 1;
  for (int i = 0; i < 20000; ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    lengths.push_back(static_cast<int64_t>(state >> 40) % 700);
  }
  const PackPlan packed = plan(lengths, {.row_length = 512, .overlong = Overlong::split});
  std::vector<int64_t> seen(lengths.size(), 0);
  for (const Placement& piece : packed.placements) seen[static_cast<size_t>(piece.sample)] += piece.length;
  EXPECT_EQ(seen, lengths);
  EXPECT_EQ(packed.num_tokens, std::accumulate(lengths.begin(), lengths.end(), int64_t{0}));
  rows(packed);
  EXPECT_GT(packed.fill(), 0.99);
  EXPECT_EQ(plan(lengths, {.row_length = 512, .overlong = Overlong::split}).placements, packed.placements);
}

class PackedRows : public testing::Test {
 protected:
  PackedRows()
      : cache_(TokenCache::build(folder_.path() / "c", 1, [](TokenSink& sink) {
          sink.add({.ids = {10, 11, 12}, .trained = {0, 1, 1}}, 1, false);
          sink.add({.ids = {20, 21, 22, 23, 24, 25, 26}, .trained = {0, 0, 1, 1, 1, 1, 1}}, 2, false);
        })) {}

  /// ids, starts, positions and labels of a row, in that order.
  std::vector<std::vector<int32_t>> filled(const PackPlan& plan, int64_t row) const {
    std::vector<std::vector<int32_t>> arrays(4,
                                             std::vector<int32_t>(static_cast<size_t>(plan.row_length), 99));
    fill_row(plan.row(row), cache_, 0,
             {.ids = arrays[0], .document_starts = arrays[1], .positions = arrays[2], .labels = arrays[3]});
    return arrays;
  }

  TemporaryFolder folder_;
  TokenCache cache_;
};

TEST_F(PackedRows, HoldDocumentsPositionsAndLabels) {
  const auto row = filled(plan(cache_.lengths(), {.row_length = 12}), 0);
  EXPECT_THAT(row[0], ElementsAre(20, 21, 22, 23, 24, 25, 26, 10, 11, 12, 0, 0));
  EXPECT_THAT(row[1], ElementsAre(0, 0, 0, 0, 0, 0, 0, 7, 7, 7, 10, 10));
  EXPECT_THAT(row[2], ElementsAre(0, 1, 2, 3, 4, 5, 6, 0, 1, 2, 0, 0));
  EXPECT_THAT(row[3], ElementsAre(-1, 22, 23, 24, 25, 26, -1, 11, 12, -1, -1, -1));
}

TEST_F(PackedRows, TheirLabelsAreCounted) {
  for (const Overlong overlong : {Overlong::split, Overlong::truncate}) {
    const auto packed = plan(cache_.lengths(), {.row_length = 5, .overlong = overlong});
    for (int64_t row = 0; row < packed.num_rows(); ++row) {
      const auto labels = filled(packed, row)[3];
      const auto counted =
          std::count_if(labels.begin(), labels.end(), [](int32_t label) { return label >= 0; });
      EXPECT_EQ(num_labels(packed.row(row), cache_), counted);
    }
  }
}

TEST_F(PackedRows, PiecesAreLabeledAcrossRowsButTruncatedOnesAreNot) {
  const auto split = plan(cache_.lengths(), {.row_length = 5, .overlong = Overlong::split});
  EXPECT_THAT(filled(split, 0)[3], ElementsAre(-1, 22, 23, 24, 25));
  EXPECT_THAT(filled(split, 1)[2], ElementsAre(0, 1, 2, 0, 1));
  EXPECT_THAT(filled(plan(cache_.lengths(), {.row_length = 5}), 0)[3], ElementsAre(-1, 22, 23, 24, -1));
}

TEST(TokenCacheFile, KeepsSamplesMasksAndLines) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "c";
  int built = 0;
  const auto produce = [&](TokenSink& sink) {
    ++built;
    sink.add({.ids = {1, 2}, .trained = {0, 1}}, 7, true);
    sink.add({.ids = {2'000'000'000}, .trained = {1}}, 8, false);
    sink.add({}, 9, false);
    sink.add({.ids = {4, 5}, .trained = {0, 0}}, 10, false);
  };
  EXPECT_FALSE(TokenCache::open(path, 1));
  for (int i = 0; i < 2; ++i) {
    const TokenCache cache = TokenCache::open_or_build(path, 1, produce);
    EXPECT_EQ(cache.num_samples(), 3);
    EXPECT_THAT(cache.lengths(), ElementsAre(3, 0, 2));
    EXPECT_EQ(cache.sample(0)[2].id(), 2'000'000'000);
    EXPECT_TRUE(cache.sample(0)[2].trained());
    EXPECT_FALSE(cache.sample(0)[0].trained());
    EXPECT_EQ(cache.line(2), 10);
  }
  EXPECT_EQ(built, 1);
  const TokenCache part = TokenCache::build(folder.path() / "part", 3, [&](TokenSink& sink) {
    produce(sink);
    sink.note({.left_out = 3, .without_reasoning = 2});
  });
  EXPECT_EQ(part.notes(), (RecordCounts{.left_out = 3, .without_reasoning = 2}));
  built = 1;
  TokenCache::open_or_build(path, 2, produce);
  EXPECT_EQ(built, 2);
}

TEST(TokenCacheFile, DamageIsSeenWhereverItIs) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "c";
  const auto produce = [](TokenSink& sink) { sink.add({.ids = {1, 2, 3}, .trained = {0, 1, 1}}, 7, false); };
  TokenCache::build(path, 1, produce);
  const std::string whole = read_file(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_FALSE(TokenCache::open(path, 1)) << at;
    std::ofstream(path, std::ios::binary) << whole.substr(0, at);
    EXPECT_FALSE(TokenCache::open(path, 1)) << at;
  }
  EXPECT_EQ(TokenCache::open_or_build(path, 1, produce).num_tokens(), 3);
  EXPECT_EQ(read_file(path), whole);
}

TEST(TokenCacheFile, AFailedBuildLeavesTheOldFile) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() / "c";
  TokenCache::build(path, 1, [](TokenSink& sink) { sink.add({.ids = {1}, .trained = {1}}, 1, false); });
  EXPECT_THAT(fault_of([&] { TokenCache::build(path, 2, [](TokenSink&) { user_error("half way"); }); }),
              "half way");
  EXPECT_TRUE(TokenCache::open(path, 1));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), {}), 1);
}

TEST(CacheKey, DependsOnEveryPart) {
  const auto key = [](std::string_view a, std::string_view b, std::string_view c) {
    return cache_key(std::as_bytes(std::span(a)), std::as_bytes(std::span(b)), c);
  };
  EXPECT_EQ(key("a", "b", "c"), key("a", "b", "c"));
  EXPECT_NE(key("a", "b", "c"), key("x", "b", "c"));
  EXPECT_NE(key("a", "b", "c"), key("a", "x", "c"));
  EXPECT_NE(key("a", "b", "c"), key("a", "b", "x"));
  EXPECT_NE(key("ab", "", "c"), key("a", "b", "c"));
}

}  // namespace
}  // namespace hearth::text
