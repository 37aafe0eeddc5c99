#include "passes/memory/encode_saved.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "graph_text.h"
#include "ir/verify.h"
#include "passes/memory/recompute.h"

namespace hearth::passes {
namespace {

constexpr int64_t kMinBytes = 16 << 10;

/// A norm, two linear layers and a gate, with the nodes of their backward pass. %4 is the cotangent.
const std::string kBlock = R"(input %0 "x" : f32[128, 64]
frozen %1 "scale" : f32[64]
frozen %2 "w" : bf16[64, 128]
frozen %3 "v" : bf16[64, 128]
scalar %4 "weight" : f32[]
%5 = scale(%0) {factor=2.0} : f32[128, 64]
%6, %7 = rms_norm(%5, %1) {eps=1e-05, offset=0.0, out_dtype="bf16"} : bf16[128, 64], f32[128]
%8 = matmul(%6, %2) {transpose_a=0, transpose_b=0} : bf16[128, 128]
%9 = matmul(%6, %3) {transpose_a=0, transpose_b=0} : bf16[128, 128]
%10 = glu(%8, %9) {activation="silu"} : bf16[128, 128]
%11 = broadcast_scalar(%4) {shape=[128, 128]} : f32[128, 128]
%12 = cast(%11) {dtype="bf16"} : bf16[128, 128]
%13 = matmul(%12, %10) {transpose_a=1, transpose_b=0, out_dtype="f32"} : f32[128, 128]
%14, %15 = glu_grad(%8, %9, %12) {activation="silu"} : bf16[128, 128], bf16[128, 128]
%16 = matmul(%14, %6) {transpose_a=1, transpose_b=0, out_dtype="f32"} : f32[128, 64]
%17 = matmul(%15, %3) {transpose_a=0, transpose_b=1, out_dtype="f32"} : f32[128, 64]
%18, %19 = rms_norm_grad(%5, %1, %7, %17) {offset=0.0} : f32[128, 64], f32[64]
return %10, %13, %16, %18
)";

TrainGraph train_graph(const std::string& text) {
  TrainGraph train{.graph = graph_of(text)};
  train.loss_weight = *train.graph.find("weight");
  return train;
}

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::Node& node : graph.nodes) names.emplace_back(node.op->name);
  return names;
}
/// Name of the op that produces input `k` of the last node of an op.
std::string producer_of(const ir::Graph& graph, std::string_view op, size_t k) {
  std::string name;
  for (const ir::Node& node : graph.nodes) {
    if (node.op->name != op) continue;
    const ir::NodeId producer = graph.value(node.inputs[k]).producer;
    name = producer == ir::kNone ? "" : graph.node(producer).op->name;
  }
  return name;
}

TEST(EncodeSaved, EncodesInputsAndRecomputesNormsAndActivations) {
  TrainGraph train = train_graph(kBlock);
  std::erase(train.graph.outputs, train.graph.nodes[4].outputs[0]);
  const EncodeResult result = encode_saved(train, {}, kMinBytes);
  ir::verify(train.graph, "encode_saved");
  EXPECT_EQ(ops_of(train.graph),
            (std::vector<std::string>{
                "scale",      "rms_norm",   "encode_fp8", "matmul",           "matmul",
                "glu",        "encode_fp8", "encode_fp8", "broadcast_scalar", "cast",
                "decode_fp8", "decode_fp8", "glu",        "matmul",           "glu_grad",
                "decode_fp8", "rms_norm",   "matmul",     "matmul",           "rms_norm_grad"}));
  EXPECT_EQ(result.num_encoded, 3);
  EXPECT_EQ(result.num_recomputed, 2);
  EXPECT_EQ(result.full_bytes, 128 * (64 * 4 + 64 * 2 + 3 * 128 * 2));
  EXPECT_EQ(result.encoded_bytes, 128 * (65 + 2 * 129));
  EXPECT_GT(result.seconds, 0);
  EXPECT_EQ(producer_of(train.graph, "rms_norm_grad", 0), "decode_fp8");
  // Statistics and the forward pass are exact.
  EXPECT_EQ(train.graph.nodes.back().inputs[2], train.graph.nodes[1].outputs[1]);
  EXPECT_EQ(producer_of(train.graph, "rms_norm_grad", 2), "rms_norm");
  EXPECT_EQ(train.graph.nodes[5].inputs, (std::vector<ir::ValueId>{8, 9}));
}

TEST(EncodeSaved, KeepsOutputsAndWhatOtherReadersNeed) {
  TrainGraph train = train_graph(kBlock);  // returns the glu
  EXPECT_EQ(encode_saved(train, {}, kMinBytes).num_encoded, 3);
  EXPECT_EQ(std::ranges::count(ops_of(train.graph), "glu"), 1);
  EXPECT_EQ(std::ranges::count(ops_of(train.graph), "rms_norm"), 2);
  // With a reader that is not in the list of tolerant ops, %8 and %9 stay.
  std::string text = kBlock;
  text.replace(text.find("return"), 6,
               "%20 = add(%8, %12) : bf16[128, 128]\n%21 = sub(%9, %12) : bf16[128, 128]\nreturn %20, %21,");
  TrainGraph other = train_graph(text);
  EXPECT_EQ(encode_saved(other, {}, kMinBytes).num_encoded, 1);
  EXPECT_EQ(other.graph.nodes.back().inputs[0], 9);
}

TEST(EncodeSaved, DoesNothingWithoutABackwardPass) {
  TrainGraph train = train_graph(kBlock);
  train.loss_weight = ir::kNone;
  EXPECT_EQ(encode_saved(train, {}, kMinBytes).num_encoded, 0);
  EXPECT_EQ(ops_of(train.graph), ops_of(graph_of(kBlock)));
}

TEST(EncodeSaved, LeavesValuesWhoseViewIsRead) {
  std::string text = kBlock;
  const std::string view = "%10 = glu(%8, %9)";
  text.replace(text.find(view), view.size(),
               "%30 = reshape(%8) {shape=[128, 128]} : bf16[128, 128]\n" + view);
  const std::string grad = "%14, %15 = glu_grad(%8, %9, %12)";
  text.replace(text.find(grad), grad.size(), "%31 = mul(%30, %12) : bf16[128, 128]\n" + grad);
  text.replace(text.find("return"), 6, "return %31,");
  TrainGraph train = train_graph(text);
  EXPECT_EQ(encode_saved(train, {}, kMinBytes).num_encoded, 2);  // not %8, whose bytes the view needs
  ir::verify(train.graph, "encode_saved");
}

TEST(EncodeSaved, FreesMemoryThatRecomputeCanReduceFurther) {
  const auto no_workspace = [](const ir::Node&) { return int64_t{0}; };
  TrainGraph train = train_graph(kBlock);
  std::erase(train.graph.outputs, train.graph.nodes[4].outputs[0]);
  encode_saved(train, {}, kMinBytes);
  ir::Graph graph = train.graph;
  const RecomputeResult result = recompute(graph, peak_bytes(graph, no_workspace) - 1, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_LE(result.peak_after_bytes, result.peak_before_bytes);
}

}  // namespace
}  // namespace hearth::passes
