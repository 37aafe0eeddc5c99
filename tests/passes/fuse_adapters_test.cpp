#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "expect_pass.h"
#include "ir/op_def.h"
#include "ops/reference.h"
#include "passes/backward.h"
#include "passes/fuse/fuse.h"
#include "passes/memory/recompute.h"
#include "passes/memory/schedule.h"

namespace hearth::passes {
namespace {

/// An input and two linear layers of rank 8 and 16 with their adapters' weights.
const std::string kLeaves = R"(input %0 "x" : bf16[6, 24]
scalar %1 "weight" : f32[]
frozen %2 "w" : bf16[16, 24]
frozen %3 "v" : bf16[8, 24]
parameter %4 "w.a" : f32[8, 24]
parameter %5 "w.b" : f32[16, 8]
parameter %6 "v.a" : f32[16, 24]
parameter %7 "v.b" : f32[8, 16]
)";
const std::string kLinear = "{transpose_a=0, transpose_b=1}";
/// The first layer as %14 and the second one as %20.
std::string first_layer(const std::string& x = "%0") {
  return fmt::format(R"(%8 = matmul({0}, %2) {1} : bf16[6, 16]  # w
%9 = cast(%4) {{dtype="bf16"}} : bf16[8, 24]
%10 = matmul({0}, %9) {1} : bf16[6, 8]  # w
%11 = scale(%10) {{factor=2.0}} : bf16[6, 8]  # w
%12 = cast(%5) {{dtype="bf16"}} : bf16[16, 8]
%14 = matmul(%11, %12, none, %8) {1} : bf16[6, 16]  # w
)",
                     x, kLinear);
}
const std::string kSecondLayer = R"(%15 = matmul(%0, %3) {transpose_a=0, transpose_b=1} : bf16[6, 8]  # v
%16 = cast(%6) {dtype="bf16"} : bf16[16, 24]
%17 = matmul(%0, %16) {transpose_a=0, transpose_b=1} : bf16[6, 16]  # v
%18 = cast(%7) {dtype="bf16"} : bf16[8, 16]
%20 = matmul(%17, %18, none, %15) {transpose_a=0, transpose_b=1} : bf16[6, 8]  # v
)";
const std::string kEnd = R"(%21 = concat_last(%14, %20) : bf16[6, 24]
%22 = cast(%21) {dtype="f32"} : f32[6, 24]
%23 = square(%22) : f32[6, 24]
return %23
)";

TEST(FuseAdapters, MultipliesByTheMatricesOfOneInputTogether) {
  expect_pass(fuse_adapters, kLeaves + first_layer() + kSecondLayer + kEnd,
              kLeaves + R"(%8 = matmul(%0, %2) {transpose_a=0, transpose_b=1} : bf16[6, 16]  # w
%9 = stack_rows(%4, %6) {dtype="bf16"} : bf16[24, 24]  # w
%10 = matmul(%0, %9) {transpose_a=0, transpose_b=1} : bf16[6, 24]  # w
%12 = cast(%5) {dtype="bf16"} : bf16[16, 8]
%15 = matmul(%0, %3) {transpose_a=0, transpose_b=1} : bf16[6, 8]  # v
%18 = cast(%7) {dtype="bf16"} : bf16[8, 16]
%14, %20 = low_rank_up(%10, %12, %18, %8, %15) {begins=[0, 8], factors=[2.0, 1.0]} : bf16[6, 16], bf16[6, 8]  # w
)" + kEnd);
}

TEST(FuseAdapters, LeavesWhatItCannotComputeTogether) {
  const std::string reader = "%24 = relu(%14) : bf16[6, 16]\n";
  const std::string dropped = "%24 = relu(%0) : bf16[6, 24]\n";
  for (const std::string& text : {kLeaves + first_layer() + reader + kSecondLayer + kEnd,
                                  kLeaves + dropped + first_layer("%24") + kSecondLayer + kEnd,
                                  kLeaves + first_layer() + "return %14\n"})
    expect_pass(fuse_adapters, text, text);
  std::string full = kLeaves + first_layer() + kSecondLayer + kEnd;
  for (size_t at = full.find("bf16"); at != std::string::npos; at = full.find("bf16"))
    full.replace(at, 4, "f32");
  expect_pass(fuse_adapters, full, full);
}

/// All gradients of the sum of squares, in double.
std::vector<std::vector<double>> gradients(bool fuses) {
  TrainGraph train{.graph = graph_of(kLeaves + first_layer() + kSecondLayer + kEnd)};
  if (fuses) {
    train.graph.outputs.push_back(1);
    fuse_adapters(train.graph);
    train.graph.outputs.pop_back();
  }
  train.losses = train.graph.outputs[0];
  train.loss_weight = 1;
  backward(train);
  ir::verify(train.graph, "backward");
  std::map<ir::ValueId, std::vector<double>> values;
  values[1] = {0.25};
  for (const ir::ValueId id : {0, 2, 3, 4, 5, 6, 7}) {
    auto& list = values[id];
    list.resize(static_cast<size_t>(train.graph.type(id).shape.num_elements()));
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = std::sin(static_cast<double>(17 * i + 3 * static_cast<size_t>(id)));
  }
  ops::evaluate_reference(train.graph, values);
  std::vector<std::vector<double>> made;
  for (const Gradient& gradient : train.gradients) made.push_back(values.at(gradient.gradient));
  return made;
}

TEST(FuseAdapters, KeepsTheGradients) {
  const auto apart = gradients(false), together = gradients(true);
  ASSERT_EQ(apart.size(), 4U);
  ASSERT_EQ(together.size(), 4U);
  for (size_t k = 0; k < 4; ++k) {
    ASSERT_EQ(together[k].size(), apart[k].size());
    for (size_t i = 0; i < apart[k].size(); ++i) EXPECT_NEAR(together[k][i], apart[k][i], 1e-9);
  }
}

int64_t no_workspace(const ir::Node&) { return 0; }

TEST(Recompute, RepeatsOneOutputOfALowRankProduct) {
  std::string text = R"(input %0 "h" : f32[64, 16]
parameter %1 "b" : f32[8, 8]
parameter %2 "c" : f32[32, 8]
input %3 "base" : f32[64, 8]
input %4 "other" : f32[64, 32]
%5, %6 = low_rank_up(%0, %1, %2, %3, %4) {begins=[0, 8], factors=[1.0, 2.0]} : f32[64, 8], f32[64, 32]
)";
  for (int i = 7; i < 11; ++i) text += fmt::format("%{} = exp(%{}) : f32[64, 32]\n", i, i - 1);
  text += "%11 = mul(%10, %9) : f32[64, 32]\n%12 = mul(%11, %6) : f32[64, 32]\nreturn %12, %5\n";
  ir::Graph graph = graph_of(text);
  const int64_t before = peak_bytes(graph, no_workspace);
  recompute(graph, before * 7 / 8, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_LT(peak_bytes(graph, no_workspace), before);
  std::vector<ir::Node> products;
  for (const ir::Node& node : graph.nodes) {
    if (node.op->name == "low_rank_up") products.push_back(node);
  }
  ASSERT_EQ(products.size(), 2U);
  EXPECT_EQ(products[1].inputs, std::vector<ir::ValueId>({0, 2, 4}));
  EXPECT_EQ(products[1].outputs.size(), 1U);
  EXPECT_EQ(products[1].attrs.list("begins"), std::vector<int64_t>({8}));
  EXPECT_EQ(products[1].attrs.reals("factors"), std::vector<double>({2}));
}

TEST(Storage, GivesAnOutputOfALowRankProductTheBytesOfItsBase) {
  const auto storages = [](const std::string& second_base) {
    const ir::Graph graph =
        graph_of(R"(input %0 "h" : f32[64, 16]
parameter %1 "b" : f32[8, 8]
input %2 "x" : f32[64, 8]
%3 = exp(%2) : f32[64, 8]
%4 = exp(%3) : f32[64, 8]
%5, %6 = low_rank_up(%0, %1, %1, %3, )" +
                 second_base + R"() {begins=[0, 8], factors=[1.0, 2.0]} : f32[64, 8], f32[64, 8]
%7 = add(%5, %6) : f32[64, 8]
return %7, %4
)");
    const std::vector<int> of = assign_storage(graph).of_value;
    return std::pair(of[5] == of[3], of[6] == of[3] || of[6] == of[4]);
  };
  EXPECT_EQ(storages("%4"), std::pair(true, false)) << "%4 is read later";
  EXPECT_EQ(storages("%3"), std::pair(false, false)) << "both products read the base";
}

}  // namespace
}  // namespace hearth::passes
