#include "train/ways_to_share.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "train/bench_case.h"
#include "train/bench_workload.h"

namespace hearth::train {
namespace {

TEST(WaysToShare, SayWhatItTakesToFit) {
  EngineOptions options = engine_options(find_bench_case("llama15m-b8-fp32"), {});
  share_out(options, 2);
  const passes::CardModel& card = passes::find_card("rx7900xt");
  const auto fit = [&](int64_t card_bytes) {
    const WayToShare way = plan_way_to_share("devices=2", options, card_bytes, card, {});
    if (!way.model) return std::string("does not fit");
    EXPECT_LE(way.model->card_bytes, card_bytes);
    return way.fit;
  };
  EXPECT_EQ(fit(int64_t{20} << 30), "as it is");
  EXPECT_THAT(fit(int64_t{400} << 20), testing::HasSubstr("recomputation"));
  EXPECT_EQ(fit(int64_t{20} << 20), "does not fit");
}

TEST(WaysToShare, EachKeepsAPartOfTheStates) {
  EngineOptions options = engine_options(find_bench_case("llama15m-b8-fp32"), {});
  share_out(options, 4);
  const passes::CardModel& card = passes::find_card("rx7900xt");
  const WayToShare data = plan_way_to_share("data", options, int64_t{20} << 30, card, {});
  options.shards_states = true;
  const WayToShare zero1 = plan_way_to_share("zero1", options, int64_t{20} << 30, card, {});
  ASSERT_TRUE(data.model && zero1.model);
  // The embedding is most of all weights: who has its two moments saves the others' alone.
  const Engine engine(options, std::span(&options.batch, 1), std::span<int64_t>());
  int64_t weight_bytes = 0, largest_bytes = 0;
  for (const exec::PersistentBuffer& buffer : engine.layout().buffers()) {
    if (buffer.role != ir::Role::parameter) continue;
    weight_bytes += buffer.type.num_bytes();
    largest_bytes = std::max(largest_bytes, buffer.type.num_bytes());
  }
  ASSERT_GT(4 * largest_bytes, weight_bytes);
  const auto others = static_cast<double>(2 * (weight_bytes - largest_bytes));
  EXPECT_NEAR(static_cast<double>(data.model->card_bytes - zero1.model->card_bytes), others, 0.01 * others);
  EXPECT_GE(zero1.model->seconds, data.model->seconds);
}

}  // namespace
}  // namespace hearth::train
