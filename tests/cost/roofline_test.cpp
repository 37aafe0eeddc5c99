// The model of a GPU adds up to the graph's own cost, and its rates are what bounds it.
#include "cost/roofline.h"

#include <gmock/gmock.h>

#include "base/error.h"
#include "cost/seconds.h"
#include "graph_text.h"
#include "ir/op_def.h"

namespace hearth::cost {
namespace {

/// A matmul that is bound by arithmetic, a sum that is bound by memory, and two updates of one launch.
ir::Graph graph() {
  return graph_of(R"(input %0 "x" : bf16[1024, 2048]
input %1 "w" : bf16[2048, 1024]
state %2 "a" : f32[65536]
state %3 "b" : f32[65536]
input %4 "g" : f32[65536]
%5 = matmul(%0, %1) {transpose_a=0, transpose_b=0} : bf16[1024, 1024]
%6 = add(%5, %5) : bf16[1024, 1024]
%7 = accumulate(%2, %4) : f32[65536]
%8 = accumulate(%3, %4) : f32[65536]
return %6
)");
}
Device plain_gpu() {
  return {.half_flops_per_second = 1e12,
          .full_flops_per_second = 1e11,
          .bytes_per_second = 1e11,
          .link_bytes_per_second = 1e10,
          .launch_seconds = 1e-5,
          .overlaps = true};
}
RooflineRow row_of(const Roofline& roofline, std::string_view op) {
  const auto found = std::ranges::find(roofline.rows, op, &RooflineRow::op);
  return found == roofline.rows.end() ? RooflineRow{} : *found;
}

TEST(Roofline, AddsUpToTheCostOfTheGraph) {
  const ir::Graph g = graph();
  const Roofline roofline = make_roofline(g, plain_gpu());
  ir::Cost cost;
  for (const ir::Node& node : g.nodes) {
    cost.flops += ir::cost_of(g, node).flops;
    cost.bytes += ir::cost_of(g, node).bytes;
  }
  EXPECT_DOUBLE_EQ(roofline.flops, cost.flops);
  EXPECT_DOUBLE_EQ(roofline.bytes, cost.bytes);
  EXPECT_EQ(roofline.launches, 3);
  EXPECT_EQ(row_of(roofline, "accumulate").count, 2);
  EXPECT_EQ(row_of(roofline, "accumulate").launches, 1);
  double seconds = 0;
  for (const RooflineRow& row : roofline.rows) seconds += row.seconds;
  EXPECT_DOUBLE_EQ(roofline.seconds, seconds);
  EXPECT_DOUBLE_EQ(row_of(roofline, "matmul").seconds, 2.0 * 1024 * 1024 * 2048 / 1e12 + 1e-5);
  EXPECT_DOUBLE_EQ(row_of(roofline, "add").seconds, 3.0 * 1024 * 1024 * 2 / 1e11 + 1e-5);
  Roofline twice;
  twice.add(roofline, 2);
  EXPECT_DOUBLE_EQ(twice.seconds, 2 * seconds);
}

TEST(Roofline, TakesTheSecondsThatPlansAreWeighedBy) {
  const ir::Graph g = graph();
  const Device& gpu = find_gpu("h200");
  const Roofline roofline = make_roofline(g, gpu);
  for (const ir::Node& node : {g.nodes[0], g.nodes[1]})
    EXPECT_DOUBLE_EQ(row_of(roofline, node.op->name).seconds, seconds_of(g, node, gpu) + gpu.launch_seconds);
  EXPECT_DOUBLE_EQ(roofline.seconds, simulate(g, gpu).compute_seconds);
}

TEST(Roofline, IsFasterByWhatBoundsIt) {
  const Roofline roofline = make_roofline(graph(), plain_gpu());
  const auto seconds = [&](const Device& gpu, std::string_view op) {
    return row_of(make_roofline(graph(), gpu), op).seconds - gpu.launch_seconds;
  };
  Device arithmetic = plain_gpu(), memory = plain_gpu(), launches = plain_gpu();
  arithmetic.half_flops_per_second *= 2;
  memory.bytes_per_second *= 2;
  launches.launch_seconds /= 2;
  EXPECT_NEAR(seconds(arithmetic, "matmul"), seconds(plain_gpu(), "matmul") / 2, 1e-12);
  EXPECT_NEAR(seconds(arithmetic, "add"), seconds(plain_gpu(), "add"), 1e-12);
  EXPECT_NEAR(seconds(memory, "add"), seconds(plain_gpu(), "add") / 2, 1e-12);
  EXPECT_NEAR(seconds(memory, "matmul"), seconds(plain_gpu(), "matmul"), 1e-12);
  EXPECT_NEAR(make_roofline(graph(), launches).seconds, roofline.seconds - 3 * launches.launch_seconds,
              1e-12);
}

TEST(KnownGpus, AreKnownByName) {
  for (const Device& gpu : known_gpus()) {
    EXPECT_EQ(&find_gpu(gpu.name), &gpu);
    EXPECT_EQ(find_gpu_by_driver_name(gpu.full_name), &gpu);
    EXPECT_LT(gpu.half_flops_per_second, gpu.half_peak_flops_per_second);
    EXPECT_LT(gpu.full_flops_per_second, gpu.full_peak_flops_per_second);
    EXPECT_FALSE(gpu.sources.empty());
  }
  EXPECT_EQ(find_gpu_by_driver_name("emulated GPU 0"), nullptr);
  try {
    find_gpu("rx580");
    ADD_FAILURE() << "there is none";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(), testing::AllOf(testing::HasSubstr("'rx580'"), testing::HasSubstr("rx7900xt"),
                                             testing::HasSubstr("rtx4090")));
  }
}

}  // namespace
}  // namespace hearth::cost
