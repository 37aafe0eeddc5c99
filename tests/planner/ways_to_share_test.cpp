#include "planner/ways_to_share.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "bench/case.h"
#include "bench/open_workload.h"
#include "engine/plan_builder.h"

namespace hearth::planner {
namespace {

TEST(WaysToShare, SayWhatItTakesToFit) {
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case("llama15m-b8-fp32"), {});
  bench::set_data_parallel(options, 2);
  const cost::Device& gpu = cost::find_gpu("rx7900xt");
  const auto fit = [&](int64_t gpu_bytes) {
    const ParallelPlan way = plan_parallelism("devices=2", options, std::vector(2, gpu_bytes), gpu, {});
    if (!way.model) return std::string("does not fit");
    EXPECT_LE(way.model->gpu_bytes, gpu_bytes);
    return way.fit;
  };
  EXPECT_EQ(fit(int64_t{20} << 30), "unchanged");
  EXPECT_THAT(fit(int64_t{400} << 20), testing::HasSubstr("recomputation"));
  EXPECT_EQ(fit(int64_t{20} << 20), "does not fit");
}

TEST(WaysToShare, EachKeepsAPartOfTheStates) {
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case("llama15m-b8-fp32"), {});
  bench::set_data_parallel(options, 4);
  const cost::Device& gpu = cost::find_gpu("rx7900xt");
  const std::vector gpus(4, int64_t{20} << 30);
  const ParallelPlan data = plan_parallelism("data", options, gpus, gpu, {});
  options.parallel = Parallel::zero1;
  const ParallelPlan zero1 = plan_parallelism("zero1", options, gpus, gpu, {});
  ASSERT_TRUE(data.model && zero1.model);
  // The embedding is most of all weights: who has its two moments saves the others' alone.
  const engine::Plan plan = engine::make_plan(options, std::span(&options.batch, 1), {});
  int64_t weight_bytes = 0, largest_bytes = 0;
  for (const exec::PersistentBuffer& buffer : plan.layout->buffers()) {
    if (buffer.role != ir::Role::parameter) continue;
    weight_bytes += buffer.type.num_bytes();
    largest_bytes = std::max(largest_bytes, buffer.type.num_bytes());
  }
  ASSERT_GT(4 * largest_bytes, weight_bytes);
  const auto others = static_cast<double>(2 * (weight_bytes - largest_bytes));
  EXPECT_NEAR(static_cast<double>(data.model->gpu_bytes - zero1.model->gpu_bytes), others, 0.01 * others);
  EXPECT_GE(zero1.model->seconds, data.model->seconds);
}

TEST(WaysToShare, UnequalGpusGetUnequalStages) {
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case("llama15m-b8-fp32"), {});
  options.num_workers = 2;
  options.accumulate = 8;
  options.parallel = Parallel::pipeline;
  const auto stages = [&](int64_t first, int64_t second) {
    const ParallelPlan way =
        plan_parallelism("pipeline", options, std::vector{first, second}, cost::find_gpu("rx7900xt"), {});
    EXPECT_TRUE(way.model);
    return way.model.value_or(ScalingModel{.plans = {{}, {}}}).plans;
  };
  constexpr int64_t kPlenty = int64_t{20} << 30;
  const std::vector<PlanReport> equal = stages(kPlenty, kPlenty);
  const int64_t less = equal[0].peak_bytes - (equal[0].peak_bytes >> 3);
  const std::vector<PlanReport> unequal = stages(less, kPlenty);
  EXPECT_LE(unequal[0].peak_bytes, less);
  EXPECT_GT(unequal[1].num_parameters, equal[1].num_parameters);
  EXPECT_EQ(unequal[0].num_parameters + unequal[1].num_parameters,
            equal[0].num_parameters + equal[1].num_parameters);
}

}  // namespace
}  // namespace hearth::planner
