// Updates of one kind stand together where nothing is in the way.
#include "passes/group_updates.h"

#include <gtest/gtest.h>

#include "graph_text.h"
#include "ir/kernel_group.h"
#include "ir/verify.h"

namespace hearth::passes {
namespace {

const std::string kLeaves = R"(input %0 "x" : f32[4]
scalar %1 "factor" : f32[]
scalar %2 "other" : f32[]
state %3 "a" : f32[4]
state %4 "b" : f32[4]
state %5 "ema/a" : f32[4]
state %6 "ema/b" : f32[4]
)";

TEST(GroupUpdates, BringsTogetherWhatIsAlike) {
  ir::Graph graph = graph_of(kLeaves + R"(%7 = relu(%0) : f32[4]
%8 = accumulate(%3, %0) : f32[4]
%9 = ema_update(%5, %8, %1) {decay=0.9} : f32[4]
%10 = accumulate(%4, %7) : f32[4]
%11 = ema_update(%6, %10, %1) {decay=0.9} : f32[4]
)");
  EXPECT_EQ(ir::num_nodes_in_kernel(graph, 1), 1U);
  group_updates(graph);
  ir::verify(graph, "group_updates");
  EXPECT_EQ(renumbered(graph), renumbered(kLeaves + R"(%7 = relu(%0) : f32[4]
%8 = accumulate(%3, %0) : f32[4]
%9 = accumulate(%4, %7) : f32[4]
%10 = ema_update(%5, %8, %1) {decay=0.9} : f32[4]
%11 = ema_update(%6, %9, %1) {decay=0.9} : f32[4]
)"));
  EXPECT_EQ(ir::num_nodes_in_kernel(graph, 0), 1U) << "relu has no kernel for many nodes";
  EXPECT_EQ(ir::num_nodes_in_kernel(graph, 1), 2U);
  EXPECT_EQ(ir::num_nodes_in_kernel(graph, 3), 2U);
}

TEST(GroupUpdates, LeavesApartWhatNeedsOneAnotherOrDiffers) {
  for (const char* second : {
           "%8 = accumulate(%7, %0) : f32[4]\n",                           // the same sum again
           "%8 = accumulate(%4, %7) : f32[4]\n",                           // reads what the first made
           "%8 = fetch(%4) : f32[4]\n%9 = accumulate(%8, %0) : f32[4]\n",  // comes from the host
           "%8 = relu(%7) : f32[4]\n%9 = accumulate(%4, %8) : f32[4]\n",   // through another node
       }) {
    const std::string text = kLeaves + "%7 = accumulate(%3, %0) : f32[4]\n" + second;
    ir::Graph graph = graph_of(text);
    group_updates(graph);
    EXPECT_EQ(renumbered(graph), renumbered(text));
    EXPECT_EQ(ir::num_nodes_in_kernel(graph, 0), 1U) << second;
  }
  const std::string first = "%7 = ema_update(%5, %3, %1) {decay=0.9} : f32[4]\n";
  for (const char* second : {"%8 = ema_update(%6, %4, %1) {decay=0.8} : f32[4]\n",
                             "%8 = ema_update(%6, %4, %2) {decay=0.9} : f32[4]\n"})
    EXPECT_EQ(ir::num_nodes_in_kernel(graph_of(kLeaves + first + second), 0), 1U) << second;
  EXPECT_EQ(ir::num_nodes_in_kernel(
                graph_of(kLeaves + first + "%8 = ema_update(%6, %4, %1) {decay=0.9} : f32[4]\n"), 0),
            2U);
}

TEST(GroupUpdates, NeverOvertakesAReaderOfWhatItOverwrites) {
  const std::string text = kLeaves + R"(%7 = accumulate(%3, %0) : f32[4]
%8 = relu(%4) : f32[4]
%9 = accumulate(%4, %0) : f32[4]
return %8
)";
  ir::Graph graph = graph_of(text);
  group_updates(graph);
  EXPECT_EQ(renumbered(graph), renumbered(text));
}

const std::string kWeights = R"(input %0 "x" : bf16[4, 8]
parameter %1 "a" : f32[8, 8]
parameter %2 "b" : f32[8, 8]
)";
int64_t no_workspace(const ir::Node&) { return 0; }

TEST(GroupCasts, CastsAllWeightsAtOnceWhereThePeakDoesNotRise) {
  ir::Graph graph = graph_of(kWeights + R"(%3 = cast(%1) {dtype="bf16"} : bf16[8, 8]
%4 = matmul(%0, %3) : bf16[4, 8]
%5 = cast(%2) {dtype="bf16"} : bf16[8, 8]
%6 = matmul(%4, %5) : bf16[4, 8]
%7 = matmul(%6, %3) : bf16[4, 8]
return %7
)");
  group_casts(graph, no_workspace);
  ir::verify(graph, "group_casts");
  EXPECT_EQ(graph.nodes[0].op->name, "cast");
  EXPECT_EQ(ir::num_nodes_in_kernel(graph, 0), 2U);
}

TEST(GroupCasts, KeepsTheOrderWhereThePeakWouldRise) {
  const std::string text = kWeights + R"(%3 = cast(%1) {dtype="bf16"} : bf16[8, 8]
%4 = matmul(%0, %3) : bf16[4, 8]
%5 = cast(%2) {dtype="bf16"} : bf16[8, 8]
%6 = matmul(%4, %5) : bf16[4, 8]
return %6
)";
  ir::Graph graph = graph_of(text);
  group_casts(graph, no_workspace);
  EXPECT_EQ(renumbered(graph), renumbered(text));
}

TEST(GroupUnstacking, TakesGradientsApartAtTheLastOfThem) {
  const auto text = [](bool early) {
    return kWeights + R"(%3 = matmul(%0, %0) {transpose_a=1, transpose_b=0, out_dtype="f32"} : f32[8, 8]
%4, %5 = unstack_rows(%3) {rows=[4, 4], dtype="f32"} : f32[4, 8], f32[4, 8]
)" + (early ? "%6 = add(%4, %5) : f32[4, 8]\n" : "") +
           R"(%7 = matmul(%1, %2) : f32[8, 8]
%8, %9 = unstack_rows(%7) {rows=[4, 4], dtype="f32"} : f32[4, 8], f32[4, 8]
)" + (early ? "" : "%6 = add(%4, %5) : f32[4, 8]\n") +
           "%10 = add(%8, %9) : f32[4, 8]\nreturn %6, %10\n";
  };
  for (const bool early : {false, true}) {
    ir::Graph graph = graph_of(text(early));
    group_unstacking(graph,
                     [](const ir::Node& node) { return node.op->name == "add" ? int64_t{1 << 20} : 0; });
    ir::verify(graph, "group_unstacking");
    EXPECT_EQ(graph.nodes[1].op->name, early ? "unstack_rows" : "matmul");
    EXPECT_EQ(ir::num_nodes_in_kernel(graph, early ? 1 : 2), early ? 1U : 2U);
  }
}

}  // namespace
}  // namespace hearth::passes
