#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "base/error.h"
#include "expect_pass.h"
#include "graph_text.h"
#include "ir/op_def.h"
#include "ir/verify.h"
#include "passes/autocast.h"
#include "passes/backward.h"
#include "passes/fuse/fuse.h"
#include "passes/memory/recompute.h"
#include "passes/memory/schedule.h"
#include "passes/pipeline.h"

namespace hearth::passes {
namespace {

int64_t no_workspace(const ir::Node&) { return 0; }

TEST(FuseConvPool, TakesOnlyImagesAndTwoByTwoWindows) {
  const auto network = [](const char* kernel, const char* out) {
    return fmt::format(R"(input %0 "images" : f32[2, 8, 8, 3]
parameter %1 "w" : f32[3, 3, 3, 16]
parameter %2 "b" : f32[16]
%3 = conv2d(%0, %1, %2) {{stride=1, padding=1, activation="relu"}} : f32[2, 8, 8, 16]
%4, %5 = max_pool2d(%3) {{kernel={0}, stride={0}, padding=0}} : f32[2, {1}, {1}, 16], u8[2, {1}, {1}, 16]
return %4
)",
                       kernel, out);
  };
  ir::Graph graph = graph_of(network("2", "4"));
  fuse_conv_pool(graph);
  graph.remove_dead_nodes();
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].op->name, "conv2d_pool");
  expect_pass(fuse_conv_pool, network("4", "2"), network("4", "2"));
}

TEST(FuseConvPool, LeavesDilationAndGroupsApart) {
  for (const auto& [weight, attrs] :
       {std::pair{"3, 3, 4, 16", "padding=2, dilation=2"}, {"3, 3, 1, 16", "padding=1, groups=4"}}) {
    const std::string network = fmt::format(R"(input %0 "images" : f32[2, 8, 8, 4]
parameter %1 "w" : f32[{}]
%2 = conv2d(%0, %1) {{stride=1, {}, activation="relu"}} : f32[2, 8, 8, 16]
%3, %4 = max_pool2d(%2) {{kernel=2, stride=2, padding=0}} : f32[2, 4, 4, 16], u8[2, 4, 4, 16]
return %3
)",
                                            weight, attrs);
    expect_pass(fuse_conv_pool, network, network);
  }
}

const std::string kNormLeaves = R"(input %0 "x" : f32[2, 9, 9, 3]
parameter %1 "w" : f32[3, 3, 3, 16]
parameter %2 "weight" : f32[16]
parameter %3 "bias" : f32[16]
state %4 "mean" : f32[16]
state %5 "var" : f32[16]
input %6 "shortcut" : f32[2, 9, 9, 16]
)";

TEST(FuseNorm, FoldsItIntoAConvolutionThatNothingElseReads) {
  const auto network = [](const char* conv, const char* read) {
    return kNormLeaves + fmt::format(R"(%7 = conv2d(%0, %1) {{stride=1, padding=1{}}} : f32[2, 9, 9, 16]
%8 = batch_norm_infer(%7, %2, %3, %4, %5, %6) {{eps=0.001, activation="relu"}} : f32[2, 9, 9, 16]
return %8{}
)",
                                     conv, read);
  };
  const auto fuse = [](ir::Graph& graph) { fuse_norm(graph, {}); };
  expect_pass(fuse, network("", ""),
              kNormLeaves + R"(%7 = conv2d_norm(%0, %1, %2, %3, %4, %5, none, %6) )" +
                  R"({eps=0.001, activation="relu", stride=1, padding=1} : f32[2, 9, 9, 16]
return %7
)");
  for (const auto& [conv, read] : {std::pair{"", ", %7"}, std::pair{", activation=\"relu\"", ""}})
    expect_pass(fuse, network(conv, read), network(conv, read));
  expect_pass([](ir::Graph& graph) { fuse_norm(graph, {.gradients = true}); }, network("", ""),
              network("", ""));
}

TEST(FuseNorm, FoldsInTrainingWhatNoGradientGoesThrough) {
  std::string leaves = kNormLeaves;
  for (size_t at = 0; (at = leaves.find("parameter", at)) != std::string::npos;)
    leaves.replace(at, std::strlen("parameter"), "state");
  expect_pass([](ir::Graph& graph) { fuse_norm(graph, {.gradients = true}); },
              leaves + R"(%7 = conv2d(%0, %1) {stride=1, padding=1} : f32[2, 9, 9, 16]
%8 = batch_norm_infer(%7, %2, %3, %4, %5) {eps=0.001} : f32[2, 9, 9, 16]
return %8
)",
              leaves + R"(%7 = conv2d_norm(%0, %1, %2, %3, %4, %5, none, none) )" +
                  R"({eps=0.001, stride=1, padding=1} : f32[2, 9, 9, 16]
return %7
)");
}

/// Returns a graph with the gradient of a batch norm with relu and a residual, whose dy is computed by the
/// gradient of a convolution with this weight. `mask`: attribute of the batch norm; `by_conv`: further inputs
/// of the convolution; `end`: text after the first inputs of the norm's gradient.
std::string masked_gradient(const std::string& weight, const std::string& mask, const std::string& by_conv,
                            const std::string& outputs, const std::string& end) {
  return R"(input %0 "x" : bf16[2, 9, 9, 16]
input %1 "dy" : bf16[2, 9, 9, 16]
parameter %2 "weight" : f32[16]
parameter %3 "running_mean" : f32[16]
parameter %4 "w" : bf16)" +
         weight + "\n%5, %6, %7, %8, %9" + (mask.empty() ? "" : ", %15") +
         " = batch_norm(%0, %2, %2, %3, %3) {activation=\"relu\"" + mask +
         "} : bf16[2, 9, 9, 16], f32[16], f32[16], f32[16], f32[16]" + (mask.empty() ? "" : ", u8[324]") +
         "\n%10 = conv2d_grad_input(%1, %4" + by_conv + ") {padding=" + (weight[1] == '3' ? "1" : "0") +
         ", in_h=9, in_w=9} : bf16[2, 9, 9, 16]\n" + outputs + " = batch_norm_grad(%0, %2, %6, %7, %10, " +
         end + "return %11, %12, %13, %16\n";
}

TEST(FuseMasks, StoresABitPerElementAndMasksInTheConvolution) {
  const std::string four = "%11, %12, %13, %14", grads = " : bf16[2, 9, 9, 16], f32[16], f32[16]";
  const std::string rest = ") {activation=\"relu\", residual=1}" + grads +
                           ", bf16[2, 9, 9, 16]\n%16 = relu(%14) : bf16[2, 9, 9, 16]\n";
  for (const std::string weight : {"[3, 3, 16, 16]", "[1, 1, 16, 16]"}) {
    const std::string before = masked_gradient(weight, "", "", four, "%5" + rest);
    const std::string read = masked_gradient(weight, ", mask=1", "", four, "none, none, %15" + rest);
    const std::string moved = masked_gradient(weight, ", mask=1", ", none, %15", "%11, %12, %13",
                                              "none, none, none) {activation=\"none\", residual=0}" + grads +
                                                  "\n%16 = relu(%10) : bf16[2, 9, 9, 16]\n");
    expect_pass([](ir::Graph& graph) { fuse_masks(graph, {}); }, before, read);
    expect_pass([](ir::Graph& graph) { fuse_masks(graph, {.in_conv = true}); }, before,
                weight[1] == '3' ? moved : read);
    expect_pass([](ir::Graph& graph) { fuse_masks(graph, {.in_conv = true, .in_matmul = true}); }, before,
                moved);
  }
}

TEST(FuseNorm, MeasuresWhereTheConvolutionIsMadeInTrainingOnRequest) {
  const std::string norm = R"({momentum=0.1, eps=1e-05} : f32[2, 9, 9, 16], f32[16], f32[16], f32[16], f32[16]
return %8
)";
  const std::string apart = kNormLeaves + R"(%7 = conv2d(%0, %1) {stride=1, padding=1} : f32[2, 9, 9, 16]
%8, %9, %10, %11, %12 = batch_norm(%7, %2, %3, %4, %5) )" +
                            norm;
  const std::string together =
      kNormLeaves + R"(%7, %13 = conv2d_moments(%0, %1) {stride=1, padding=1} : f32[2, 9, 9, 16], )" +
      R"(f32[3, 2, 16]
%8, %9, %10, %11, %12 = batch_norm(%7, %2, %3, %4, %5, none, %13) )" +
      norm;
  expect_pass([](ir::Graph& graph) { fuse_norm(graph, {.moments = true}); }, apart, together);
  expect_pass([](ir::Graph& graph) { fuse_norm(graph, {}); }, apart, apart);
}

TEST(FuseElementwise, MakesOneLoopOfAChain) {
  ir::Graph graph = graph_of(R"(input %0 "x" : f32[64]
input %1 "y" : f32[64]
%2 = mul(%0, %1) : f32[64]
%3 = add(%2, %0) : f32[64]
%4 = relu(%3) : f32[64]
return %4
)");
  fuse_elementwise(graph);
  ir::verify(graph, "fuse_elementwise");
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].op->name, "fused_elementwise");
}

TEST(FuseElementwise, LeavesSumsThatWouldWaitForMatmuls) {
  const std::string text = R"(input %0 "x" : f32[8, 8]
input %1 "y" : f32[8, 8]
%2 = matmul(%0, %1) {transpose_a=0, transpose_b=0} : f32[8, 8]
%3 = matmul(%1, %0) {transpose_a=0, transpose_b=0} : f32[8, 8]
%4 = add(%2, %3) : f32[8, 8]
%5 = matmul(%0, %0) {transpose_a=0, transpose_b=0} : f32[8, 8]
%6 = add(%4, %5) : f32[8, 8]
return %6
)";
  expect_pass(fuse_elementwise, text, text);
}

TEST(FuseElementwise, LeavesSumsForReadersWithoutSomeInputs) {
  const std::string text = R"(input %0 "x" : f32[1, 4, 4, 2]
parameter %1 "w" : f32[1, 1, 2, 2]
%2 = add(%0, %0) : f32[1, 4, 4, 2]
%3 = conv2d(%2, %1, none, %0) {stride=1, padding=0} : f32[1, 4, 4, 2]
return %3
)";
  expect_pass(fuse_elementwise, text, text);
}

TEST(FuseElementwise, KeepsWhatIsReadTwice) {
  const std::string text = R"(input %0 "x" : f32[64]
%1 = relu(%0) : f32[64]
%2 = add(%1, %0) : f32[64]
return %1, %2
)";
  expect_pass(fuse_elementwise, text, text);
}

TrainGraph linear_classifier() {
  TrainGraph train{.graph = graph_of(R"(input %0 "x" : f32[4, 8]
input %1 "labels" : i32[4]
scalar %2 "weight" : f32[]
parameter %3 "w" : f32[3, 8]
%4 = matmul(%0, %3) {transpose_a=0, transpose_b=1} : f32[4, 3]  # fc
%5 = softmax_cross_entropy(%4, %1) {smoothing=0.0} : f32[4]  # loss
return %5
)")};
  train.losses = 5;
  train.loss_weight = 2;
  return train;
}

TEST(Backward, GivesEveryParameterItsGradient) {
  TrainGraph train = linear_classifier();
  backward(train);
  ir::verify(train.graph, "backward");
  ASSERT_EQ(train.gradients.size(), 1U);
  train.graph.outputs = {train.gradients[0].gradient};
  train.graph.remove_dead_nodes();
  EXPECT_EQ(renumbered(train.graph), renumbered(R"(input %0 "x" : f32[4, 8]
input %1 "labels" : i32[4]
scalar %2 "weight" : f32[]
parameter %3 "w" : f32[3, 8]
%4 = matmul(%0, %3) {transpose_a=0, transpose_b=1} : f32[4, 3]  # fc
%5 = broadcast_scalar(%2) {shape=[4]} : f32[4]  # loss
%6 = softmax_cross_entropy_grad(%4, %1, %5) {smoothing=0.0} : f32[4, 3]  # loss
%7 = matmul(%6, %0) {transpose_a=1, transpose_b=0, out_dtype="f32"} : f32[3, 8]  # fc
return %7
)"));
}

TEST(Backward, AddsUpTheGradientsOfAValueReadTwice) {
  TrainGraph train{.graph = graph_of(R"(input %0 "labels" : i32[4]
scalar %1 "weight" : f32[]
parameter %2 "w" : f32[4, 3]
%3 = mul(%2, %2) : f32[4, 3]
%4 = softmax_cross_entropy(%3, %0) {smoothing=0.0} : f32[4]
return %4
)")};
  train.losses = 4;
  train.loss_weight = 1;
  backward(train);
  ASSERT_EQ(train.gradients.size(), 1U);
  const ir::Graph& graph = train.graph;
  EXPECT_EQ(graph.node(graph.value(train.gradients[0].gradient).producer).op->name, "add");
}

/// Neither x nor the mean is read for it.
TEST(Backward, GoesThroughAFrozenBatchNormToXAlone) {
  TrainGraph train{.graph = graph_of(R"(input %0 "labels" : i32[4]
scalar %1 "weight" : f32[]
parameter %2 "w" : f32[4, 3]
state %3 "norm.weight" : f32[3]
state %4 "norm.bias" : f32[3]
state %5 "mean" : f32[3]
state %6 "var" : f32[3]
%7 = square(%2) : f32[4, 3]
%8 = batch_norm_infer(%7, %3, %4, %5, %6) {eps=0.001, activation="relu"} : f32[4, 3]
%9 = softmax_cross_entropy(%8, %0) {smoothing=0.0} : f32[4]
return %9
)")};
  train.losses = 9;
  train.loss_weight = 1;
  backward(train);
  ir::verify(train.graph, "backward");
  ASSERT_EQ(train.gradients.size(), 1U);
  const auto found = std::ranges::find_if(
      train.graph.nodes, [](const ir::Node& node) { return node.op->name == "batch_norm_infer_grad"; });
  ASSERT_NE(found, train.graph.nodes.end());
  ASSERT_EQ(found->inputs.size(), 4U);
  EXPECT_EQ(std::vector<ir::ValueId>(found->inputs.begin() + 1, found->inputs.end()),
            (std::vector<ir::ValueId>{3, 6, 8}));
  EXPECT_EQ(found->outputs.size(), 1U);
}

/// Labels that are made of a weight, and their one-hot form, which has no gradient rule.
TEST(Backward, EndsAtWholeNumbers) {
  TrainGraph train{.graph = graph_of(R"(scalar %0 "weight" : f32[]
parameter %1 "w" : f32[4, 3]
%2 = argmax(%1) : i32[4]
%3 = one_hot(%2) {classes=3} : f32[4, 3]
%4 = mul(%1, %3) : f32[4, 3]
%5 = sum_trailing(%4) : f32[4]
return %5
)")};
  train.losses = 5;
  train.loss_weight = 0;
  backward(train);
  ir::verify(train.graph, "backward");
  ASSERT_EQ(train.gradients.size(), 1U);
  const ir::Graph& graph = train.graph;
  EXPECT_EQ(graph.node(graph.value(train.gradients[0].gradient).producer).op->name, "mul");
}

TEST(Autocast, ComputesLowAndLosesHigh) {
  TrainGraph train = linear_classifier();
  autocast(train, DType::bf16);
  ir::verify(train.graph, "autocast");
  for (const ir::Node& node : train.graph.nodes) {
    if (node.op->name == "matmul") {
      EXPECT_EQ(train.graph.type(node.inputs[0]).dtype, DType::bf16);
      EXPECT_EQ(train.graph.type(node.inputs[1]).dtype, DType::bf16);
    }
    if (node.op->name == "softmax_cross_entropy") {
      EXPECT_EQ(train.graph.type(node.inputs[0]).dtype, DType::f32);
    }
  }
  EXPECT_EQ(train.graph.type(train.graph.find("w").value()).dtype, DType::f32);
}

TEST(Autocast, LeavesTheAnglesOfARopeInFullPrecision) {
  TrainGraph train{.graph = graph_of(R"(input %0 "x" : f32[4, 8]
input %1 "positions" : i32[4]
parameter %2 "w" : f32[6, 8]
%3 = rope_table(%1) {inv_freq=[1.0, 0.1, 0.01], scale=1.0} : f32[4, 6]
%4 = matmul(%0, %2) {transpose_a=0, transpose_b=1} : f32[4, 6]
%5 = rope(%4, %3) {head_size=6, inverse=0} : f32[4, 6]
return %5
)")};
  autocast(train, DType::bf16);
  ir::verify(train.graph, "autocast");
  for (const ir::Node& node : train.graph.nodes) {
    if (node.op->name != "rope") continue;
    EXPECT_EQ(train.graph.type(node.inputs[0]).dtype, DType::bf16);
    EXPECT_EQ(train.graph.type(node.inputs[1]).dtype, DType::f32);
  }
}

TEST(Autocast, LeavesTheBiasOfAttentionInFullPrecision) {
  TrainGraph train{.graph = graph_of(R"(input %0 "x" : f32[4, 8]
input %1 "bias" : f32[2, 4, 4]
%2, %3 = attention(%0, %0, %0, none, %1) {batch=1, heads=2, kv_heads=2, head_size=4, scale=0.5, causal=0} : f32[4, 8], f32[4, 2]
return %2
)")};
  autocast(train, DType::bf16);
  ir::verify(train.graph, "autocast");
  for (const ir::Node& node : train.graph.nodes) {
    if (node.op->name != "attention") continue;
    EXPECT_EQ(train.graph.type(node.inputs[0]).dtype, DType::bf16);
    EXPECT_EQ(train.graph.type(node.inputs[4]).dtype, DType::f32);
  }
}

TEST(Autocast, LeavesFullPrecisionAlone) {
  TrainGraph train = linear_classifier();
  const std::string before = renumbered(train.graph);
  autocast(train, DType::f32);
  EXPECT_EQ(renumbered(train.graph), before);
}

/// Two large values made early, each shrunk by a sum: run as listed, all four are alive together.
constexpr const char* kWide = R"(input %0 "x" : f32[1024]
%1 = relu(%0) : f32[1024]
%2 = square(%0) : f32[1024]
%3 = neg(%0) : f32[1024]
%4 = sum_all(%1) : f32[]
%5 = sum_all(%2) : f32[]
%6 = sum_all(%3) : f32[]
return %4, %5, %6
)";

TEST(Schedule, RunsFirstWhatFreesMost) {
  ir::Graph graph = graph_of(kWide);
  const int64_t before = peak_bytes(graph, no_workspace);
  schedule(graph, no_workspace);
  ir::verify(graph, "schedule");
  EXPECT_GT(before, 3 * 4096);
  EXPECT_LT(peak_bytes(graph, no_workspace), 2 * 4096);
}

/// A forward chain whose values are all read again on the way back.
std::string there_and_back(int length) {
  std::string text = "input %0 \"x\" : f32[1024]\n";
  for (int i = 0; i < length; ++i) text += fmt::format("%{} = exp(%{}) : f32[1024]\n", i + 1, i);
  for (int i = 0; i < length; ++i) {
    text += fmt::format("%{} = mul(%{}, %{}) : f32[1024]\n", length + i + 1, length + i, length - i);
  }
  return text + fmt::format("return %{}\n", 2 * length);
}

TEST(Recompute, HoldsTheBudgetByMakingValuesAgain) {
  ir::Graph graph = graph_of(there_and_back(16));
  const int64_t free_bytes = peak_bytes(graph, no_workspace);
  const int64_t budget = free_bytes * 6 / 10;
  const RecomputeResult result = recompute(graph, budget, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(result.peak_before_bytes, free_bytes);
  EXPECT_LE(peak_bytes(graph, no_workspace), budget);
  EXPECT_EQ(result.peak_after_bytes, peak_bytes(graph, no_workspace));
  EXPECT_GT(result.num_recomputed, 0);
}

TEST(Recompute, AddsNothingWithoutABudgetOrBelowIt) {
  for (const int64_t budget : {int64_t{0}, int64_t{1} << 30}) {
    ir::Graph graph = graph_of(there_and_back(8));
    EXPECT_EQ(recompute(graph, budget, no_workspace).num_recomputed, 0);
    EXPECT_EQ(renumbered(graph), renumbered(there_and_back(8)));
  }
}

TEST(Recompute, SaysWhenItCannot) {
  ir::Graph graph = graph_of(there_and_back(8));
  const RecomputeResult result = recompute(graph, 4096, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.peak_after_bytes, peak_bytes(graph, no_workspace));
}

/// Losses of 512 tokens over a vocabulary, after exponentials that wait for their gradients.
std::string losses_behind(int num_waiting, int vocab) {
  std::string text = fmt::format(
      "input %0 \"x\" : f32[512, 16]\nparameter %1 \"w\" : f32[{}, 16]\ninput %2 \"labels\" : i32[512]\n"
      "scalar %3 \"one\" : f32[]\n%10 = exp(%0) : f32[512, 16]\n",
      vocab);
  for (int i = 1; i < num_waiting; ++i) text += fmt::format("%{} = exp(%{}) : f32[512, 16]\n", 10 + i, 9 + i);
  text += fmt::format(
      "%100, %101, %102 = head_cross_entropy_train(%{}, %1, %2, %3) : f32[512], f32[512, 16], f32[{}, 16]\n",
      9 + num_waiting, vocab);
  for (int i = 1; i <= num_waiting; ++i)
    text += fmt::format("%{} = mul(%{}, %{}) : f32[512, 16]\n", 101 + 2 * i, i == 1 ? 101 : 99 + 2 * i,
                        10 + num_waiting - i);
  return text + fmt::format("return %100, %102, %{}\n", 101 + 2 * num_waiting);
}
int64_t rows_of_logits(const ir::Graph& graph) {
  for (const ir::Node& node : graph.nodes) {
    if (node.op->smaller != nullptr) return node.attrs.integer_or("rows", 256);
  }
  return 0;
}
int64_t a_kilobyte_per_row(const ir::Node& node) {
  return node.op->smaller == nullptr ? 0 : 1024 * node.attrs.integer_or("rows", 256);
}

TEST(Recompute, WeighsSmallerChunksOfLogitsAgainstMakingAgain) {
  // The smaller vocabulary is cheap to read once more for every chunk.
  for (const int vocab : {64, 4096}) {
    ir::Graph graph = graph_of(losses_behind(6, vocab));
    const int64_t budget = peak_bytes(graph, a_kilobyte_per_row) - 100000;
    const RecomputeResult result = recompute(graph, budget, a_kilobyte_per_row);
    ir::verify(graph, "recompute");
    EXPECT_TRUE(result.fits);
    EXPECT_EQ(result.peak_after_bytes, peak_bytes(graph, a_kilobyte_per_row));
    EXPECT_EQ(result.num_smaller, vocab == 64 ? 1 : 0);
    EXPECT_EQ(result.num_recomputed > 0, vocab != 64);
    EXPECT_EQ(rows_of_logits(graph), vocab == 64 ? 128 : 256);
  }
}

TEST(Recompute, LeavesTheLogitsWholeWhenSmallerChunksGainNothing) {
  const auto everywhere = [](const ir::Node& node) {
    return node.op->smaller == nullptr ? 1 << 20 : a_kilobyte_per_row(node);
  };
  ir::Graph graph = graph_of(losses_behind(2, 64));
  const RecomputeResult result = recompute(graph, 1 << 19, everywhere);
  EXPECT_FALSE(result.fits);
  EXPECT_EQ(result.num_smaller, 0);
  EXPECT_EQ(rows_of_logits(graph), 256);
}

TEST(Recompute, RepeatsBatchNormFromItsStatisticsAndMovesAveragesOnce) {
  std::string text = R"(input %0 "x" : f32[64, 32]
parameter %1 "weight" : f32[32]
parameter %2 "bias" : f32[32]
state %3 "mean" : f32[32]
state %4 "variance" : f32[32]
%5, %6, %7, %8, %9 = batch_norm(%0, %1, %2, %3, %4) {momentum=0.1, eps=1e-05} : f32[64, 32], f32[32], f32[32], f32[32], f32[32]
)";
  for (int i = 10; i < 14; ++i) text += fmt::format("%{} = exp(%{}) : f32[64, 32]\n", i, i == 10 ? 5 : i - 1);
  text += "%14 = mul(%13, %12) : f32[64, 32]\n%15 = mul(%14, %5) : f32[64, 32]\nreturn %15\n";
  ir::Graph graph = graph_of(text);
  recompute(graph, peak_bytes(graph, no_workspace) * 7 / 8, no_workspace);
  ir::verify(graph, "recompute");
  const auto count = [&](std::string_view name) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [&](const ir::Node& node) { return node.op->name == name; });
  };
  EXPECT_EQ(count("batch_norm"), 1);
  EXPECT_EQ(count("batch_norm_infer"), 1);
}

// With optimizer.in_backward a weight moves between two readers of what was made of it.
TEST(Recompute, MakesNothingAgainOfAWeightThatHasMoved) {
  for (const bool moves : {false, true}) {
    std::string text = R"(input %0 "x" : f32[1024]
parameter %1 "weight" : f32[1024]
state %2 "momentum" : f32[1024]
scalar %3 "rate" : f32[]
scalar %4 "scale" : f32[]
%5 = exp(%1) : f32[1024]
)";
    for (int i = 6; i < 10; ++i) text += fmt::format("%{} = exp(%{}) : f32[1024]\n", i, i == 6 ? 0 : i - 1);
    text += "%10 = mul(%9, %8) : f32[1024]\n";
    if (moves)
      text +=
          "%11, %12 = sgd_update(%1, %10, %3, %4, %2) {momentum=0.9, nesterov=0, weight_decay=0.0} : "
          "f32[1024], "
          "f32[1024]\n";
    text += fmt::format("%13 = mul(%10, %5) : f32[1024]\nreturn %13{}\n", moves ? ", %11, %12" : "");
    ir::Graph graph = graph_of(text);
    const RecomputeResult result = recompute(graph, peak_bytes(graph, no_workspace) - 4096, no_workspace);
    ir::verify(graph, "recompute");
    EXPECT_EQ(result.num_recomputed, moves ? 0 : 1);
  }
}

TEST(Recompute, RepeatsANormWithItsSecondOutput) {
  std::string text = R"(input %0 "x" : f32[64, 32]
parameter %1 "weight" : f32[32]
%2, %3 = rms_norm(%0, %1) {eps=1e-05, offset=0.0} : f32[64, 32], f32[64]
)";
  for (int i = 4; i < 8; ++i) text += fmt::format("%{} = exp(%{}) : f32[64, 32]\n", i, i == 4 ? 2 : i - 1);
  text += "%8 = mul(%7, %6) : f32[64, 32]\n%9 = mul(%8, %2) : f32[64, 32]\nreturn %9, %3\n";
  ir::Graph graph = graph_of(text);
  const int64_t before = peak_bytes(graph, no_workspace);
  recompute(graph, before * 7 / 8, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_LT(peak_bytes(graph, no_workspace), before);
  EXPECT_EQ(std::count_if(graph.nodes.begin(), graph.nodes.end(),
                          [](const ir::Node& node) { return node.op->name == "rms_norm"; }),
            2);
}

TEST(Pipeline, RefusesUnknownAndRequiredNames) {
  TrainGraph train = linear_classifier();
  PassContext context{.workspace_of = no_workspace, .off = {"fuse_elementwis"}};
  EXPECT_THROW(run_passes(train, context, Stage::compute), UserError);
  context.off = {"backward"};
  EXPECT_THROW(run_passes(train, context, Stage::compute), UserError);
}

TEST(Pipeline, ReportsEveryPassThatRan) {
  TrainGraph train = linear_classifier();
  std::vector<std::string> seen;
  PassContext context{.workspace_of = no_workspace, .off = {"schedule"}};
  context.after_pass = [&](std::string_view name, const ir::Graph&, double) { seen.emplace_back(name); };
  for (const Stage stage : {Stage::compute, Stage::exchange, Stage::place}) run_passes(train, context, stage);
  EXPECT_EQ(seen.size(), pass_list().size() - 1);
  EXPECT_EQ(std::count(seen.begin(), seen.end(), "schedule"), 0);
}

}  // namespace
}  // namespace hearth::passes
