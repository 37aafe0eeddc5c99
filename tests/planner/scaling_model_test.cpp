// Replays of planned programs agree with what their bytes and kernels alone come to.
#include "planner/scaling_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>

#include "bench/case.h"
#include "bench/open_workload.h"
#include "cost/roofline.h"
#include "engine/plan_builder.h"
#include "ir/op_def.h"
#include "planner/step_model.h"

namespace hearth::planner {
namespace {

constexpr double kEndless = 1e18;

const cost::Device& gpu() { return cost::find_gpu("rx7900xt"); }

engine::EngineOptions options_of(const char* name, int num_workers) {
  engine::EngineOptions options = bench::engine_options(bench::find_bench_case(name), {});
  bench::set_data_parallel(options, num_workers);
  options.backend = exec::Backend::gpu;
  return options;
}

double busy(const ScalingModel& model, exec::Queue queue) {
  return model.busy_seconds[static_cast<size_t>(queue)];
}

/// Bytes and number of the nodes of one op in a program.
struct Moved {
  double num_bytes = 0;
  int count = 0;
};
Moved moved_by(const exec::Program& program, std::string_view op) {
  Moved moved;
  for (const ir::Node& node : program.graph.nodes) {
    if (node.op->name != op) continue;
    ++moved.count;
    for (const ir::ValueId in : node.inputs)
      moved.num_bytes += static_cast<double>(program.graph.type(in).num_bytes());
  }
  return moved;
}

TEST(ScalingModel, TakesAsLongAsKernelsAndBytesDo) {
  engine::EngineOptions options = options_of("resnet18-b64-fp32", 2);
  options.device = gpu();
  const engine::Plan plan = engine::make_plan(options, std::span(&options.batch, 1), {});
  const exec::Program& program = plan.train_program();
  const Moved sums = moved_by(program, "all_reduce"), out = moved_by(program, "stash");
  double kernels = 0;
  for (const cost::RooflineRow& row : cost::make_roofline(program.graph, gpu()).rows) {
    if (row.op != "all_reduce" && row.op != "stash" && row.op != "fetch") kernels += row.seconds;
  }
  ASSERT_GT(sums.count, 5);
  EXPECT_DOUBLE_EQ(sums.num_bytes, out.num_bytes);

  const Links endless{.gpu = kEndless, .memory = kEndless, .sums = kEndless};
  const ScalingModel fast = model_scaling(options, gpu(), endless);
  EXPECT_EQ(fast.num_samples, 128);
  EXPECT_FALSE(fast.is_text);
  EXPECT_NEAR(busy(fast, exec::Queue::compute), kernels, 1e-9);
  EXPECT_NEAR(busy(fast, exec::Queue::out), out.count * gpu().launch_seconds, 1e-9);
  EXPECT_NEAR(fast.seconds, busy(fast, exec::Queue::compute) + fast.exposed_seconds, 1e-9);

  // Each limit alone, so low that the rest of the step hides behind it.
  Links slow = endless;
  slow.gpu = 1e8;
  EXPECT_NEAR(busy(model_scaling(options, gpu(), slow), exec::Queue::out), out.num_bytes / 1e8, 1e-3);
  slow = endless;
  slow.sums = 1e8;
  EXPECT_NEAR(busy(model_scaling(options, gpu(), slow), exec::Queue::exchange), sums.num_bytes / 1e8, 1e-2);
  slow = endless;
  slow.network = 1e8;
  // Of two machines each sends and receives every byte once.
  EXPECT_NEAR(busy(model_scaling(options, gpu(), slow), exec::Queue::exchange), sums.num_bytes / 1e8, 1e-2);
  slow = endless;
  slow.memory = 1e8;
  const ScalingModel shared = model_scaling(options, gpu(), slow);
  // Two GPUs send, fetch, and add up: read and write.
  const double crossed = 2 * (2 * out.num_bytes + 2 * sums.num_bytes);
  EXPECT_GE(shared.seconds, crossed / 1e8);
  EXPECT_LE(shared.seconds, 1.1 * crossed / 1e8);
}

TEST(ScalingModel, BucketsFollowOneAnotherClosely) {
  const engine::EngineOptions options = options_of("resnet18-b64-fp32", 2);
  const engine::Plan plan = engine::make_plan(options, std::span(&options.batch, 1), {});
  const exec::Program& program = plan.train_program();
  std::map<std::string, size_t> fetched;
  int num_sent = 0;
  for (size_t s = 0; s < program.steps.size(); ++s) {
    const ir::Node& node = program.graph.nodes[program.steps[s].node];
    if (node.op->name == "fetch") fetched[node.name] = s;
    if (node.op->name != "stash") continue;
    ++num_sent;
    const int bucket = std::stoi(node.name.substr(node.name.find(' ')));
    const auto front = fetched.find(fmt::format("bucket {}", bucket - 1));
    EXPECT_EQ(front, fetched.end()) << node.name << " comes after the return of the one before it";
  }
  EXPECT_GT(num_sent, 10);
}

TEST(ScalingModel, CountsImagesWhateverTheirLabelsAre) {
  for (const char* const name : {"unet-b8-fp32", "yolox_nano-b8-fp32", "resnet18-b64-bf16"}) {
    const bench::BenchCase& images = bench::find_bench_case(name);
    const StepModel model = model_step(bench::engine_options(images, {}), gpu());
    EXPECT_EQ(model.num_samples, images.batch) << name;
    EXPECT_FALSE(model.is_text) << name;
  }
  const StepModel text =
      model_step(bench::engine_options(bench::find_bench_case("llama15m-b8-bf16"), {}), gpu());
  EXPECT_EQ(text.num_samples, 8 * 256);
  EXPECT_TRUE(text.is_text);
}

TEST(ScalingModel, MicroBatchesBeforeTheLastExchangeNothing) {
  engine::EngineOptions options = options_of("mlp-b64-fp32", 2);
  const ScalingModel one = model_scaling(options, gpu(), {});
  options.accumulate = 8;
  const ScalingModel four = model_scaling(options, gpu(), {});
  EXPECT_EQ(four.num_samples, 4 * one.num_samples);
  EXPECT_DOUBLE_EQ(busy(four, exec::Queue::exchange), busy(one, exec::Queue::exchange));
  EXPECT_GT(busy(four, exec::Queue::compute), 2 * busy(one, exec::Queue::compute));
}

TEST(ScalingModel, GoesByTheNamedGpu) {
  const engine::EngineOptions options = options_of("mlp-b64-fp32", 2);
  const ScalingModel slow = model_scaling(options, cost::find_gpu("rx7900xt"), {});
  const ScalingModel fast = model_scaling(options, cost::find_gpu("h200"), {});
  EXPECT_LT(busy(fast, exec::Queue::compute), busy(slow, exec::Queue::compute));
  EXPECT_NE(fast.plans[0].time.seconds, slow.plans[0].time.seconds);
}

}  // namespace
}  // namespace hearth::planner
