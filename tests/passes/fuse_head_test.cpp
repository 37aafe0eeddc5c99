#include "passes/fuse/head.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "graph_text.h"
#include "ir/op_def.h"
#include "ir/verify.h"
#include "ops/reference.h"
#include "passes/backward.h"

namespace hearth::passes {
namespace {

/// A head of 9 words after a weight of 4, differentiated; the second form weighs each loss by itself.
TrainGraph differentiated(bool own_weights) {
  std::string text = R"(input %0 "x" : f32[6, 4]
input %1 "labels" : i32[6]
scalar %2 "weight" : f32[]
input %3 "own" : f32[6]
parameter %4 "w" : f32[9, 4]
parameter %5 "norm" : f32[4]
%6, %7 = rms_norm(%0, %5) {eps=1e-05, offset=0.0} : f32[6, 4], f32[6]
%8, %9 = head_cross_entropy(%6, %4, %1) {rows=4, softcap=0.0} : f32[6], f32[6]  # head
)";
  text += own_weights ? "%10 = mul(%8, %3) : f32[6]\nreturn %10\n" : "return %8\n";
  TrainGraph train{.graph = graph_of(text)};
  train.losses = own_weights ? 10 : 8;
  train.loss_weight = 2;
  backward(train);
  for (const Gradient& gradient : train.gradients) train.graph.outputs.push_back(gradient.gradient);
  train.graph.remove_dead_nodes();
  return train;
}

int64_t count(const ir::Graph& graph, std::string_view name) {
  return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                       [&](const ir::Node& node) { return node.op->name == name; });
}

/// Every output of the graph, in double.
std::vector<double> evaluate(const ir::Graph& graph) {
  std::map<ir::ValueId, std::vector<double>> values;
  values[1] = {0, 8, -1, 3, 3, 5};
  values[2] = {0.25};
  for (const ir::ValueId id : {0, 3, 4, 5}) {
    auto& list = values[id];
    list.resize(static_cast<size_t>(graph.type(id).shape.num_elements()));
    for (size_t i = 0; i < list.size(); ++i)
      list[i] = std::sin(static_cast<double>(17 * i + 3 * static_cast<size_t>(id)));
  }
  ops::evaluate_reference(graph, values);
  std::vector<double> all;
  for (const ir::ValueId id : graph.outputs)
    all.insert(all.end(), values.at(id).begin(), values.at(id).end());
  return all;
}

TEST(FuseHead, ComputesLogitsOnceAndChangesNothing) {
  TrainGraph train = differentiated(false);
  const std::vector<double> before = evaluate(train.graph);
  fuse_head(train.graph);
  ir::verify(train.graph, "fuse_head");
  EXPECT_EQ(count(train.graph, "head_cross_entropy_train"), 1);
  EXPECT_EQ(count(train.graph, "head_cross_entropy") + count(train.graph, "head_cross_entropy_grad"), 0);
  EXPECT_EQ(count(train.graph, "broadcast_scalar"), 0);
  const std::vector<double> after = evaluate(train.graph);
  ASSERT_EQ(after.size(), before.size());
  ASSERT_GT(before.size(), 6U + 36U);
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-12) << i;
}

TEST(FuseHead, KeepsATeacher) {
  TrainGraph train{.graph = graph_of(R"(input %0 "x" : f32[6, 4]
input %1 "labels" : i32[6]
scalar %2 "weight" : f32[]
input %3 "ids" : i32[6, 2]
parameter %4 "w" : f32[9, 4]
input %5 "logps" : f32[6, 2]
%6, %7 = head_cross_entropy(%0, %4, %1, %3, %5) {distill_weight=0.5, rows=4, softcap=0.0} : f32[6], f32[6]  # head
return %6
)")};
  train.losses = 6;
  train.loss_weight = 2;
  backward(train);
  for (const Gradient& gradient : train.gradients) train.graph.outputs.push_back(gradient.gradient);
  train.graph.remove_dead_nodes();
  std::map<ir::ValueId, std::vector<double>> values;
  values[0] = std::vector<double>(24, 0.5);
  values[1] = {0, 8, -1, 3, 3, 5};
  values[2] = {0.25};
  values[3] = {0, 8, 1, 2, 3, 4, 5, 6, 7, 8, 0, 1};
  values[4] = std::vector<double>(36, 0.25);
  for (size_t i = 0; i < values[4].size(); ++i) values[4][i] = std::sin(static_cast<double>(i));
  values[5] = {-1, -1, -2, -3, -1, -4, -1, -1, -2, -3, -1, -4};
  const auto evaluate = [&] {
    auto all = values;
    ops::evaluate_reference(train.graph, all);
    std::vector<double> found;
    for (const ir::ValueId id : train.graph.outputs)
      found.insert(found.end(), all.at(id).begin(), all.at(id).end());
    return found;
  };
  const std::vector<double> before = evaluate();
  fuse_head(train.graph);
  ir::verify(train.graph, "fuse_head");
  EXPECT_EQ(count(train.graph, "head_cross_entropy_train"), 1);
  EXPECT_EQ(count(train.graph, "head_cross_entropy"), 0);
  const std::vector<double> after = evaluate();
  ASSERT_EQ(after.size(), before.size());
  for (size_t i = 0; i < after.size(); ++i) EXPECT_NEAR(after[i], before[i], 1e-9) << i;
}

TEST(FuseHead, LeavesLossesOfDifferentWeight) {
  TrainGraph train = differentiated(true);
  fuse_head(train.graph);
  EXPECT_EQ(count(train.graph, "head_cross_entropy_train"), 0);
  EXPECT_EQ(count(train.graph, "head_cross_entropy_grad"), 1);
}

TEST(FuseHead, LeavesAnLseThatSomethingElseReads) {
  TrainGraph train = differentiated(false);
  for (const ir::Node& node : train.graph.nodes) {
    if (node.op->name == "head_cross_entropy") train.graph.outputs.push_back(node.outputs[1]);
  }
  fuse_head(train.graph);
  ir::verify(train.graph, "fuse_head");
  EXPECT_EQ(count(train.graph, "head_cross_entropy_train"), 0);
}

TEST(EnlargeHeadChunks, StaysWithinAPartOfTheMemoryAndTheTokens) {
  ir::Graph graph = graph_of(R"(input %0 "x" : f32[5000, 4]
parameter %1 "head" : f32[9, 4]
input %2 "labels" : i32[5000]
%3, %4 = head_cross_entropy(%0, %1, %2) {rows=4, softcap=0.0} : f32[5000], f32[5000]
return %3
)");
  constexpr int64_t kRowBytes = 9 * sizeof(float);
  const auto rows_within = [&](int64_t memory_bytes) {
    enlarge_head_chunks(graph, memory_bytes);
    return graph.nodes[0].attrs.integer("rows");
  };
  EXPECT_EQ(rows_within(0), 4);
  EXPECT_EQ(rows_within(64 * 16 * kRowBytes), 16);
  EXPECT_EQ(rows_within(int64_t{1} << 40), 4096);
}

}  // namespace
}  // namespace hearth::passes
