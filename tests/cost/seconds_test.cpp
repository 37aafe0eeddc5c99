// One formula for a node: what a device's rates make of it, by what it reads and where its bytes go.
#include "cost/seconds.h"

#include <gtest/gtest.h>

#include "cost/expectation.h"
#include "cost/kernel_share.h"
#include "graph_text.h"
#include "ir/op_def.h"

namespace hearth::cost {
namespace {

ir::Graph graph() {
  return graph_of(R"(input %0 "x" : bf16[1024, 2048]
input %1 "w" : bf16[2048, 1024]
input %2 "y" : f32[1024, 1024]
%3 = matmul(%0, %1) {transpose_a=0, transpose_b=0} : bf16[1024, 1024]
%4 = add(%2, %2) : f32[1024, 1024]
%5 = stash(%4) : f32[1024, 1024]
return %3
)");
}

TEST(SecondsOf, FollowsTheDevice) {
  const ir::Graph g = graph();
  Device device{.half_flops_per_second = 1e12,
                .full_flops_per_second = 1e10,
                .bytes_per_second = 1e11,
                .link_bytes_per_second = 1e9,
                .launch_seconds = 1};
  const ir::Cost matmul = ir::cost_of(g, g.nodes[0]), add = ir::cost_of(g, g.nodes[1]);
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[0], device), matmul.flops / 1e12 + matmul.bytes / 1e11);
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[1], device), add.flops / 1e10 + add.bytes / 1e11);
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[2], device), ir::cost_of(g, g.nodes[2]).bytes / 1e9);
  device.overlaps = true;
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[0], device), matmul.flops / 1e12);
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[1], device), add.bytes / 1e11);
}

TEST(SecondsOf, TakesTheRateOfTheFactorsAndNotOfTheirSum) {
  const ir::Graph g = graph_of(R"(input %0 "sum" : f32[1024, 512]
input %1 "a" : bf16[2048, 1024]
input %2 "b" : bf16[2048, 512]
%3 = matmul_accumulate(%0, %1, %2) {transpose_a=1, out_dtype="f32"} : f32[1024, 512]
return %3
)");
  const Device device{.half_flops_per_second = 1e12,
                      .full_flops_per_second = 1e10,
                      .bytes_per_second = 1e11,
                      .overlaps = true};
  EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[0], device), ir::cost_of(g, g.nodes[0]).flops / 1e12);
}

TEST(SecondsOf, FollowsWhatKernelsReachOfAGpu) {
  const ir::Graph g = graph_of(R"(input %0 "square" : bf16[4096, 4096]
input %1 "rows" : bf16[128, 4096]
%2 = matmul(%0, %0) {transpose_b=1} : bf16[4096, 4096]
%3 = matmul(%0, %0) {transpose_a=1} : bf16[4096, 4096]
%4 = matmul(%1, %0) {} : bf16[128, 4096]
return %2
)");
  const auto rate = [&](size_t node, const Device& device) {
    return ir::cost_of(g, g.nodes[node]).flops / seconds_of(g, g.nodes[node], device);
  };
  Device gpu = find_gpu("rx7900xt");
  const double full = gpu.half_flops_per_second;
  EXPECT_GT(rate(0, gpu), 0.9 * full);
  EXPECT_LT(rate(1, gpu), rate(0, gpu));
  // 32 tiles of outputs, each in three parts, on 42 units: 96 blocks in three rounds.
  EXPECT_NEAR(rate(2, gpu), 96.0 / 126 * 0.98 * full, 1e-3 * full);
  gpu.vendor = Vendor::none;
  for (const size_t node : {0, 1, 2}) EXPECT_DOUBLE_EQ(rate(node, gpu), full);
}

TEST(KernelShare, FollowsKindDtypeVendorAndRows) {
  using Kind = ir::KernelKind;
  const ir::Cost conv{.kernel = Kind::depthwise_conv, .filled = 0.5};
  EXPECT_DOUBLE_EQ(kernel_share(conv, true, Vendor::amd), 0.5 * 0.016);
  EXPECT_DOUBLE_EQ(kernel_share(conv, false, Vendor::nvidia), 0.5 * 0.25);
  EXPECT_DOUBLE_EQ(kernel_share(conv, true, Vendor::none), 1);
  EXPECT_DOUBLE_EQ(kernel_share({.kernel = Kind::timestep_embedding}, false, Vendor::amd), 0.016);
  const ir::Cost few{.kernel = Kind::quantized_matmul_nn, .rows = 130};
  const ir::Cost many{.kernel = Kind::quantized_matmul_nn, .rows = 1300};
  EXPECT_DOUBLE_EQ(kernel_share(few, true, Vendor::amd), 0.98);
  EXPECT_DOUBLE_EQ(kernel_share(few, true, Vendor::nvidia), 0.5);
  EXPECT_DOUBLE_EQ(kernel_share(many, true, Vendor::amd), 0.98 * 1300 / 1430);
}

TEST(SecondsOf, FollowsTheMeasuredBandwidthOfBatchNormOnNvidiaAlone) {
  const ir::Graph g = graph_of(R"(input %0 "x" : bf16[8192, 1024]
input %1 "weight" : f32[1024]
input %2 "bias" : f32[1024]
state %3 "mean" : f32[1024]
state %4 "var" : f32[1024]
%5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4) {momentum=0.1, eps=1e-05} : bf16[8192, 1024], f32[1024], f32[1024], f32[1024], f32[1024]
return %5
)");
  const double bytes = ir::cost_of(g, g.nodes[0]).bytes;
  for (const auto& [name, share] : {std::pair{"h200", 0.6}, {"rx7900xt", 1.0}}) {
    const Device& gpu = find_gpu(name);
    EXPECT_DOUBLE_EQ(seconds_of(g, g.nodes[0], gpu), bytes / (share * gpu.bytes_per_second)) << name;
  }
}

TEST(ExpectedSeconds, AreTheModeledOnesWithinTheErrorOfTheClass) {
  const ir::Graph g = graph();
  const auto range = [&](size_t node, const Device& gpu) {
    const TimeRange seconds = expected_seconds(g, g.nodes[node], gpu);
    const double modeled = seconds_of(g, g.nodes[node], gpu);
    return std::pair{seconds.low / modeled, seconds.high / modeled};
  };
  const auto fit = [](KernelClass kernels) { return class_fits()[static_cast<size_t>(kernels)]; };
  const Device& amd = find_gpu("rx7900xt");
  const ClassFit matmul = fit(KernelClass::matmul), memory = fit(KernelClass::memory);
  EXPECT_DOUBLE_EQ(range(0, amd).second, 0.82 * matmul.factor * matmul.error);
  EXPECT_DOUBLE_EQ(range(1, amd).first, 0.85 * memory.factor / memory.error);
  EXPECT_EQ(range(2, amd), std::pair(1.0, 1.0));
  EXPECT_DOUBLE_EQ(range(0, find_gpu("h200")).second, 1.15);
  EXPECT_EQ(range(0, Device{}), std::pair(1.0, 1.0));
}

TEST(SecondsOf, DiffersBetweenGpus) {
  const ir::Graph g = graph();
  for (const ir::Node& node : {g.nodes[0], g.nodes[1]})
    EXPECT_LT(4 * seconds_of(g, node, find_gpu("h200")), seconds_of(g, node, find_gpu("rx7900xt")));
}

TEST(Simulate, AddsUpNodesAndLaunches) {
  const ir::Graph g = graph();
  const Device& gpu = find_gpu("h100");
  const StepTime time = simulate(g, gpu);
  EXPECT_DOUBLE_EQ(time.compute_seconds,
                   seconds_of(g, g.nodes[0], gpu) + seconds_of(g, g.nodes[1], gpu) + 2 * gpu.launch_seconds);
  EXPECT_DOUBLE_EQ(time.link_seconds, seconds_of(g, g.nodes[2], gpu) + gpu.launch_seconds);
}

TEST(NearestGpu, IsItselfOrOneOfItsVendors) {
  EXPECT_EQ(nearest_gpu("NVIDIA H200").name, "h200");
  EXPECT_EQ(nearest_gpu("NVIDIA H100 80GB HBM3").name, "h100");
  EXPECT_EQ(nearest_gpu("NVIDIA GeForce RTX 3060").name, "rtx4090");
  EXPECT_EQ(nearest_gpu("AMD Radeon RX 5700 XT").name, "rx7900xt");
  EXPECT_EQ(nearest_gpu("").name, "rx7900xt");
}

TEST(EmulatedGpu, HasTheRatesOfAModelsPrecision) {
  const Device full = emulated_gpu(DType::f32), half = emulated_gpu(DType::bf16);
  EXPECT_EQ(full.half_flops_per_second, default_gpu().full_flops_per_second);
  EXPECT_EQ(full.full_flops_per_second, default_gpu().full_flops_per_second);
  EXPECT_EQ(half.full_flops_per_second, default_gpu().half_flops_per_second);
  EXPECT_FALSE(full.overlaps);
  EXPECT_EQ(full.launch_seconds, 0);
}

}  // namespace
}  // namespace hearth::cost
