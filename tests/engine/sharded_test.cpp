// Weights of which each lives on one worker alone.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "bench/case.h"
#include "bench/open_workload.h"
#include "engine/group_run.h"
#include "engine/plan_builder.h"
#include "ir/op_def.h"
#include "planner/plan_report.h"
#include "run/from_recipe.h"

namespace hearth::engine {
namespace {

/// Two epochs of 65 rows: the last of three updates has six of eight micro-batches, one of them short.
constexpr const char* kShardedImages = R"(
model: {name: mlp, num_classes: 10, hidden: [24, 16], dropout: 0.1}
data: {kind: shapes, image_size: 8, count: 65, val_count: 20, flip: true, crop_padding: 1, threads: 1}
train: {epochs: 2, batch: 3, accumulate: 8, shards: 4, checkpoint_every: 2, clip_norm: 1, log_every: 1}
optimizer: {name: adamw, lr: 0.01}
threads: 1
)";

class Sharded : public testing::Test {
 protected:
  TemporaryFolder folder_{run::quick_folder()};
  std::string words_ = words_recipe(
      folder_.path(), "steps: 6, batch: 2, accumulate: 8, shards: 4, eval_every: 2, log_every: 1");
};

std::string sharded(const std::string& yaml) { return yaml + "parallel: sharded\n"; }

TEST_F(Sharded, WorkersMakeTheBitsOfOneThatHasAllWeights) {
  for (const std::string& yaml : {std::string(kShardedImages), words_, words_ + "precision: bf16\n",
                                  words_ + "precision: bf16\nmatmul_precision: fp8-tensor\n"})
    expect_bits_of_one(sharded(yaml), yaml);
}

TEST_F(Sharded, ARunGoesOnWithAnotherNumberOfWorkersAndWithWholeWeights) {
  for (const std::string& yaml : {std::string(kShardedImages), words_})
    expect_bits_in_turns(sharded(yaml), yaml, 2);
}

TEST_F(Sharded, EvaluatesTheWeightsOfAllWorkers) {
  const auto losses = [&](const std::string& yaml, int devices) {
    const TemporaryFolder folder(run::quick_folder());
    train_with(yaml, devices, folder.path(), 0, false);
    std::vector<double> found;
    for (const io::CurvePoint& point : io::read_curve(folder.path() / "trainer_log.jsonl", "eval_loss"))
      found.push_back(point.value);
    found.push_back(
        static_cast<double>(std::hash<std::string>()(read_file(folder.path() / "best.safetensors"))));
    return found;
  };
  const std::vector<double> want = losses(words_, 1);
  ASSERT_EQ(want.size(), 4U);
  EXPECT_EQ(losses(sharded(words_), 2), want);
}

TEST_F(Sharded, AllAskTheFirstWeightsForWhatTheyMakeOfPreferences) {
  std::string lines;
  for (size_t i = 0; i < 22; ++i)
    lines += preference_line("n" + std::to_string(i), std::string(1 + i * 5 % 17, 'a'),
                             std::string(1 + i * 7 % 23, 'b'));
  write_file_atomically(folder_.path() / "pairs.jsonl", lines);
  const std::string yaml = fmt::format(
      "model: {{config: {0}/model/config.json}}\n"
      "data: {{path: {0}/pairs.jsonl, cache: {0}/cache, context: 64, val_share: 0.25}}\n"
      "train: {{objective: dpo, batch: 2, accumulate: 4, shards: 2, log_every: 1}}\n"
      "optimizer: {{name: adamw, lr: 0.01}}\nthreads: 1\nseed: 3\n",
      folder_.path().string());
  expect_same(train_with(sharded(yaml), 2), train_with(yaml, 1), "two workers");
}

/// The recipe with an arena of that share of what it would take.
std::string held(const std::string& yaml, double share) {
  const EngineOptions options =
      run::engine_options(tasks::Job(run::parse_recipe(yaml, "test", std::vector<std::string>{"devices=2"})));
  const auto free = static_cast<double>(planner::make_plan_report(options).arena_bytes);
  return yaml + fmt::format("memory: {}\n", static_cast<int64_t>(share * free));
}

TEST_F(Sharded, WhatIsMadeAgainChangesNoBit) {
  // Under both budgets losses come from equally few logits at a time.
  const std::string less = held(sharded(words_), 0.65), more = held(sharded(words_), 0.75);
  const auto num_recomputed = [](const std::string& yaml) {
    return planner::make_plan_report(run::engine_options(tasks::Job(run::parse_recipe(
                                         yaml, "test", std::vector<std::string>{"devices=2"}))))
        .recompute.num_recomputed;
  };
  EXPECT_GT(num_recomputed(less), 2 * num_recomputed(more));
  expect_same(train_with(less, 2), train_with(more, 2), "held to a smaller budget");
}

EngineOptions options_of(const char* bench_case, int num_workers, int rank) {
  EngineOptions options = bench::engine_options(bench::find_bench_case(bench_case), {});
  bench::set_data_parallel(options, num_workers);
  options.parallel = Parallel::sharded;
  options.rank = rank;
  options.backend = exec::Backend::gpu;
  return options;
}

TEST(ShardedPlan, EachWeightWithItsStatesIsOnOneGpu) {
  constexpr int kNumWorkers = 4;
  EngineOptions options = options_of("resnet18-b64-fp32", kNumWorkers, 0);
  options.parallel = Parallel::data;
  const Plan whole = make_plan(options, std::span(&options.batch, 1), {});
  std::vector<Plan> workers;
  int64_t max_bytes = 0;
  for (int rank = 0; rank < kNumWorkers; ++rank) {
    options = options_of("resnet18-b64-fp32", kNumWorkers, rank);
    workers.push_back(make_plan(options, std::span(&options.batch, 1), {}));
    max_bytes = std::max(max_bytes, workers.back().layout->device_bytes());
  }
  int64_t shared_bytes = 0;
  for (const exec::PersistentBuffer& buffer : whole.layout->buffers()) {
    const auto has = [&](const Plan& worker) { return worker.layout->at(buffer.name).is_on_device(); };
    const bool is_of_weight =
        buffer.role == ir::Role::parameter || buffer.name.find("momentum/") != std::string::npos;
    EXPECT_EQ(std::ranges::count_if(workers, has), is_of_weight ? 1 : kNumWorkers) << buffer.name;
    if (!is_of_weight) shared_bytes += passes::padded_bytes(buffer.type.num_bytes());
  }
  const int64_t all_bytes = whole.layout->device_bytes() - shared_bytes;
  EXPECT_LT(max_bytes - shared_bytes, all_bytes / kNumWorkers * 11 / 10);
}

/// What the workers of a program meet for, in its order.
std::vector<std::string> meetings(const exec::Program& program) {
  std::vector<std::string> found;
  for (const ir::Node& node : program.graph.nodes) {
    if (node.op->transfer != ir::Transfer::exchange) continue;
    const bool spreads = node.op->name.ends_with("broadcast");
    found.push_back(fmt::format("{} {} {}", spreads ? "broadcast" : node.op->name, node.name,
                                node.attrs.integer_or("root", -1)));
  }
  return found;
}

TEST(ShardedPlan, AllMeetInOneOrderWhateverTheirRankAndTheirMicroBatch) {
  for (const char* bench_case : {"resnet18-b64-fp32", "llama15m-b8-bf16"}) {
    std::vector<std::string> last, before;
    for (const int rank : {0, 1, 3}) {
      for (const int64_t batch : {4, 3}) {
        EngineOptions options = options_of(bench_case, 4, rank);
        options.accumulate = options.shards = 8;
        options.batch = batch;
        const Plan plan = make_plan(options, std::span(&options.batch, 1), {});
        if (last.empty()) {
          last = meetings(plan.train_program());
          before = meetings(*plan.accumulate_program());
          EXPECT_FALSE(before.empty());
          EXPECT_GT(last.size(), before.size());
        }
        EXPECT_EQ(meetings(plan.train_program()), last) << "rank " << rank << ", batch " << batch;
        EXPECT_EQ(meetings(*plan.accumulate_program()), before) << "rank " << rank << ", batch " << batch;
      }
    }
  }
}

}  // namespace
}  // namespace hearth::engine
