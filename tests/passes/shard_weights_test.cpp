#include "passes/parallel/shard_weights.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "graph_text.h"
#include "ir/op_def.h"
#include "ir/verify.h"

namespace hearth::passes {
namespace {

/// A layer of bf16 and one of f32, forward and backward; the first weight is read as its cast alone.
constexpr const char* kLayers = R"(input %0 "x" : bf16[8, 8]
parameter %1 "first" : f32[8, 8]
parameter %2 "second" : f32[8, 8]
scalar %3 "weight" : f32[]
%4 = cast(%1) {dtype="bf16"} : bf16[8, 8]
%5 = matmul(%0, %4) {transpose_a=0, transpose_b=0} : bf16[8, 8]
%6 = cast(%5) {dtype="f32"} : f32[8, 8]
%7 = matmul(%6, %2) {transpose_a=0, transpose_b=0} : f32[8, 8]
%8 = sum_all(%7) : f32[]
%9 = broadcast_scalar(%3) {shape=[8, 8]} : f32[8, 8]
%10 = matmul(%9, %2) {transpose_a=0, transpose_b=1} : f32[8, 8]
%11 = cast(%10) {dtype="bf16"} : bf16[8, 8]
%12 = matmul(%11, %4) {transpose_a=0, transpose_b=1} : bf16[8, 8]
return %8, %12
)";

TrainGraph layers() {
  TrainGraph train{.graph = graph_of(kLayers)};
  train.loss_weight = *train.graph.find("weight");
  return train;
}

TrainGraph sharded(int rank, size_t num_ahead, bool through_host = false) {
  const std::map<std::string, int> owners = {{"first", 0}, {"second", 1}};
  TrainGraph train = layers();
  shard_weights(train,
                {.owners = &owners, .rank = rank, .through_host = through_host, .num_ahead = num_ahead});
  ir::verify(train.graph, "shard_weights");
  return train;
}

std::vector<std::string> ops_of(const TrainGraph& train) {
  std::vector<std::string> names;
  for (const ir::Node& node : train.graph.nodes) {
    const bool meets = node.op->transfer != ir::Transfer::none;
    names.push_back(std::string(node.op->name) + (meets ? " " + node.name : ""));
  }
  return names;
}

using Names = std::vector<std::string>;

TEST(ShardWeights, ReceivesEachWeightInFrontOfEachPassThatReadsIt) {
  const TrainGraph train = sharded(2, 1);
  EXPECT_EQ(ops_of(train),
            (Names{"receive_broadcast first", "receive_broadcast second", "fetch first", "matmul", "cast",
                   "receive_broadcast second", "fetch second", "matmul", "sum_all", "broadcast_scalar",
                   "receive_broadcast first", "fetch second", "matmul", "cast", "fetch first", "matmul"}));
  for (const char* weight : {"first", "second"})
    EXPECT_EQ(train.graph.value(*train.graph.find(weight)).role, ir::Role::remote);
  // What travels of the first weight is its cast.
  EXPECT_EQ(train.graph.type(train.graph.nodes[0].outputs[0]).dtype, DType::bf16);
  EXPECT_EQ(train.graph.type(train.graph.nodes[1].outputs[0]).dtype, DType::f32);
}

TEST(ShardWeights, WhoeverHasAWeightSendsItAndMakesItsCastTwice) {
  for (const bool through_host : {false, true}) {
    Names want = {"cast",
                  "stash first",
                  "send_broadcast first",
                  "receive_broadcast second",
                  "matmul",
                  "cast",
                  "receive_broadcast second",
                  "fetch second",
                  "matmul",
                  "sum_all",
                  "broadcast_scalar",
                  "cast",
                  "stash first",
                  "send_broadcast first",
                  "fetch second",
                  "matmul",
                  "cast",
                  "matmul"};
    if (!through_host) std::erase(want, "stash first");
    const TrainGraph train = sharded(0, 1, through_host);
    EXPECT_EQ(ops_of(train), want);
    EXPECT_EQ(train.graph.value(*train.graph.find("first")).role, ir::Role::parameter);
    EXPECT_EQ(train.graph.value(*train.graph.find("second")).role, ir::Role::remote);
  }
}

TEST(ShardWeights, AllMeetInOneOrderWhereverTheyLookAhead) {
  const auto meetings = [](int rank, size_t num_ahead) {
    Names names;
    const TrainGraph train = sharded(rank, num_ahead);
    for (const ir::Node& node : train.graph.nodes) {
      if (node.op->transfer == ir::Transfer::exchange)
        names.push_back(fmt::format("{} of {}", node.name, node.attrs.integer("root")));
    }
    return names;
  };
  const Names want = {"first of 0", "second of 1", "second of 1", "first of 0"};
  for (const int rank : {0, 1, 2}) {
    for (const size_t num_ahead : {1UL, 2UL, 9UL}) EXPECT_EQ(meetings(rank, num_ahead), want);
  }
}

TEST(ShardWeights, LeavesAGraphAloneThatHasNoOwners) {
  TrainGraph train = layers();
  shard_weights(train, {});
  EXPECT_EQ(renumbered(train.graph), renumbered(kLayers));
}

}  // namespace
}  // namespace hearth::passes
