#include "passes/round_operands.h"

#include <gtest/gtest.h>

#include "expect_pass.h"
#include "passes/backward.h"

namespace hearth::passes {
namespace {

TEST(RoundOperands, RoundsAnOperandOnceForEachPass) {
  expect_pass(round_operands, R"(input %0 "x" : f32[3, 8]
parameter %1 "w" : f32[4, 8]
parameter %2 "v" : f32[4, 8]
%3 = matmul(%0, %1) {transpose_a=0, transpose_b=1, operands="fp8"} : f32[3, 4]
%4 = matmul(%0, %2) {transpose_a=0, transpose_b=1, operands="fp8"} : f32[3, 4]
%5 = matmul(%3, %1) {transpose_a=0, transpose_b=0, operands="fp8"} : f32[3, 8]
%6 = matmul(%4, %2) {transpose_a=0, transpose_b=0} : f32[3, 8]
return %5, %6
)",
              R"(input %0 "x" : f32[3, 8]
parameter %1 "w" : f32[4, 8]
parameter %2 "v" : f32[4, 8]
%3 = round_e4m3(%0) {block_rows=1, block_columns=0} : f32[3, 8]
%4 = round_e4m3(%1) {block_rows=1, block_columns=0} : f32[4, 8]
%5 = matmul(%3, %4) {transpose_a=0, transpose_b=1} : f32[3, 4]
%6 = round_e4m3(%2) {block_rows=1, block_columns=0} : f32[4, 8]
%7 = matmul(%3, %6) {transpose_a=0, transpose_b=1} : f32[3, 4]
%8 = round_e4m3(%5) {block_rows=1, block_columns=0} : f32[3, 4]
%9 = round_e4m3(%1) {block_rows=0, block_columns=1} : f32[4, 8]
%10 = matmul(%8, %9) {transpose_a=0, transpose_b=0} : f32[3, 8]
%11 = matmul(%7, %2) {transpose_a=0, transpose_b=0} : f32[3, 8]
return %10, %11
)");
}

TEST(RoundOperands, RoundsInTheGradientOfTheInputOnly) {
  TrainGraph train;
  ir::Graph& graph = train.graph;
  graph = graph_of(R"(input %0 "x" : f32[3, 8]
parameter %1 "u" : f32[8, 8]
parameter %2 "w" : f32[4, 8]
input %3 "loss_weight" : f32[]
%4 = matmul(%0, %1) : f32[3, 8]
%5 = matmul(%4, %2) {transpose_a=0, transpose_b=1, operands="fp8"} : f32[3, 4]
%6 = sum_trailing(%5) : f32[3]
return %6
)");
  train.losses = graph.outputs[0];
  train.loss_weight = *graph.find("loss_weight");
  backward(train);
  for (const Gradient& gradient : train.gradients) graph.outputs.push_back(gradient.gradient);
  graph.remove_dead_nodes();
  round_operands(graph);
  ir::verify(graph, "round_operands");
  const auto reads_rounded = [&](const ir::Node& node) {
    return graph.value(node.inputs[0]).producer != ir::kNone &&
           graph.node(graph.value(node.inputs[0]).producer).op->name == "round_e4m3";
  };
  int num_matmuls = 0, num_rounded = 0;
  for (const ir::Node& node : graph.nodes) {
    if (node.op->name != "matmul") continue;
    ++num_matmuls;
    num_rounded += reads_rounded(node) ? 1 : 0;
    EXPECT_FALSE(node.attrs.contains("operands"));
  }
  EXPECT_EQ(num_matmuls, 5) << "two forward, the gradients of u, w and of the input of w";
  EXPECT_EQ(num_rounded, 2) << "the matmul with w and the gradient of its input";
}

}  // namespace
}  // namespace hearth::passes
