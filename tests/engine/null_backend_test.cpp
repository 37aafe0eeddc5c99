#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "engine/plan_builder.h"
#include "exec/executor.h"
#include "tasks/classify/classifier.h"

namespace hearth::engine {
namespace {

EngineOptions options_for(const char* model, int64_t image_size, int64_t batch) {
  return {.objective = tasks::classifier({.model = {.name = model, .image_size = image_size}}),
          .batch = batch,
          .num_threads = 2};
}

exec::Program on_null(const Plan& plan) {
  return exec::compile(plan.train_program().graph, *plan.layout, {.backend = exec::Backend::null});
}

TEST(NullBackend, RunsTheGraphOfTheCpuAndTouchesNoMemory) {
  const std::array<int64_t, 1> sizes = {8};
  const Plan plan = make_plan(options_for("smallcnn", 16, 8), sizes, {});
  const exec::Program& on_cpu = plan.train_program();
  const exec::Program program = on_null(plan);
  EXPECT_GT(program.arena_bytes(), 0);
  EXPECT_LE(program.arena_bytes(), on_cpu.arena_bytes());
  EXPECT_EQ(program.report.flops, on_cpu.report.flops);
  std::vector<std::byte> persistent(static_cast<size_t>(plan.layout->num_bytes()), std::byte{0xa5});
  std::vector<std::byte> arena(static_cast<size_t>(program.arena_bytes()), std::byte{0xa5});
  exec::Executor executor(program);
  executor.bind({.persistent = persistent.data(), .arena = arena.data()});
  ThreadPool threads(2);
  std::vector<size_t> ran;
  executor.run_with(threads, [&](size_t node, double) { ran.push_back(node); });
  const auto& nodes = program.graph.nodes;
  EXPECT_EQ(std::ssize(ran), std::ranges::count_if(nodes, [](const ir::Node& n) { return !n.op->is_view; }));
  EXPECT_TRUE(std::ranges::is_sorted(ran));
  const auto untouched = [](const std::vector<std::byte>& bytes) {
    return std::ranges::all_of(bytes, [](std::byte byte) { return byte == std::byte{0xa5}; });
  };
  EXPECT_TRUE(untouched(persistent));
  EXPECT_TRUE(untouched(arena));
}

TEST(NullBackend, RunsWhatNoMemoryHolds) {
  const std::array<int64_t, 1> sizes = {65536};
  EngineOptions options = options_for("resnet50", 64, sizes[0]);
  options.backend = exec::Backend::null;
  const Plan plan = make_plan(options, sizes, {});
  EXPECT_GT(plan.arena_bytes, int64_t{256} << 30);
  const exec::Program program = on_null(plan);
  std::byte nothing{};
  exec::Executor executor(program);
  executor.bind({.persistent = &nothing, .arena = &nothing});
  ThreadPool threads(1);
  executor.run(threads);
}

}  // namespace
}  // namespace hearth::engine
