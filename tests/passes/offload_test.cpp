#include "passes/memory/offload.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "cost/seconds.h"
#include "graph_text.h"
#include "ir/op_def.h"
#include "ir/verify.h"
#include "passes/memory/recompute.h"
#include "passes/rewrite.h"

namespace hearth::passes {
namespace {

int64_t no_workspace(const ir::Node&) { return 0; }

constexpr const char* kUpdate = R"(input %0 "x" : f32[256]
parameter %1 "weight" : f32[256]
state %2 "sum" : f32[256]
state %3 "small" : f32[2]
scalar %4 "rate" : f32[]
)";

std::vector<std::string> ops_of(const ir::Graph& graph) {
  std::vector<std::string> names;
  for (const ir::Node& node : graph.nodes) names.emplace_back(node.op->name);
  return names;
}

TEST(Offload, FetchesWhatIsReadAndStoresWhatIsWritten) {
  ir::Graph graph = graph_of(std::string(kUpdate) + "%5 = mul(%0, %1) : f32[256]\n" +
                             "%6 = accumulate(%2, %5) : f32[256]\n%7 = zero(%3) : f32[2]\nreturn %5\n");
  offload(graph, {.states = true, .min_bytes = 64});
  ir::verify(graph, "offload");
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"mul", "fetch", "accumulate", "store", "zero"}));
  const std::vector<char> host = ir::on_host(graph);
  EXPECT_EQ(host[1], 0);
  EXPECT_EQ(host[2], 1);
  EXPECT_EQ(host[3], 0);
}

TEST(Offload, WritesBackEveryNewNameOfAState) {
  ir::Graph graph = graph_of(std::string(kUpdate) + "%5 = accumulate(%2, %0) : f32[256]\n" +
                             "%6 = mul(%5, %1) : f32[256]\n%7 = zero(%5) : f32[256]\nreturn %6\n");
  offload(graph, {.states = true, .weights = true, .min_bytes = 64});
  ir::verify(graph, "offload");
  EXPECT_EQ(ops_of(graph),
            (std::vector<std::string>{"fetch", "accumulate", "store", "fetch", "mul", "zero", "store"}));
}

TEST(Offload, AHostValueIsForTransfersOnly) {
  ir::Graph graph = graph_of(
      "input %0 \"x\" : f32[4]\n%1 = stash(%0) : f32[4]\n%2 = fetch(%1) : f32[4]\n"
      "%3 = mul(%1, %2) : f32[4]\nreturn %3\n");
  EXPECT_THROW(ir::verify(graph, "a test"), InternalError);
}

/// Matmuls of an input with weights, each after the other.
std::string multiplied(int length) {
  std::string text = "input %0 \"x\" : f32[4096]\n";
  for (int i = 1; i <= length; ++i) text += fmt::format("parameter %{} \"w{}\" : f32[4096]\n", i, i);
  for (int i = 1; i <= length; ++i)
    text += fmt::format("%{} = mul(%{}, %{}) : f32[4096]\n", length + i, i == 1 ? 0 : length + i - 1, i);
  return text + fmt::format("return %{}\n", 2 * length);
}

TEST(Prefetch, OverlapsCopiesWithComputingWithinTheLimit) {
  constexpr cost::Device kMachine{
      .full_flops_per_second = 1e9, .bytes_per_second = 1e10, .link_bytes_per_second = 4e9};
  ir::Graph graph = graph_of(multiplied(6));
  offload(graph, {.weights = true, .min_bytes = 64});
  const double before = cost::simulate(graph, kMachine).seconds;
  const int64_t peak = peak_bytes(graph, no_workspace);
  ir::Graph held = graph;
  prefetch(held, peak, no_workspace, kMachine);
  EXPECT_LE(peak_bytes(held, no_workspace), peak);
  prefetch(graph, int64_t{1} << 40, no_workspace, kMachine);
  ir::verify(graph, "prefetch");
  const cost::StepTime after = cost::simulate(graph, kMachine);
  EXPECT_LT(after.seconds, 0.75 * before);
  EXPECT_GE(after.seconds, std::max(after.compute_seconds, after.link_seconds));
  // One copy is under way while the one before is read.
  EXPECT_LE(peak_bytes(graph, no_workspace), peak + 2 * padded_bytes(4096 * 4));
}

TEST(Simulate, WaitsForCopies) {
  constexpr cost::Device kMachine{
      .full_flops_per_second = 1e9, .bytes_per_second = 1e30, .link_bytes_per_second = 1e9};
  const ir::Graph graph = graph_of(
      "input %0 \"x\" : f32[1000]\n%1 = stash(%0) : f32[1000]\n"
      "%2 = fetch(%1) : f32[1000]\n%3 = mul(%2, %2) : f32[1000]\nreturn %3\n");
  const cost::StepTime time = cost::simulate(graph, kMachine);
  EXPECT_NEAR(time.link_seconds, 4e-6, 1e-9);
  EXPECT_NEAR(time.compute_seconds, 1e-6, 1e-9);
  EXPECT_NEAR(time.seconds, 9e-6, 1e-9);
}

/// A forward chain of costly values that are all read again on the way back.
std::string costly(int length) {
  std::string text = "input %0 \"x\" : f32[64, 64]\nparameter %1 \"w\" : f32[64, 64]\n";
  for (int i = 0; i < length; ++i)
    text += fmt::format("%{} = matmul(%{}, %1) {{transpose_a=0, transpose_b=0}} : f32[64, 64]\n", i + 2,
                        i == 0 ? 0 : i + 1);
  for (int i = 0; i < length; ++i)
    text +=
        fmt::format("%{} = mul(%{}, %{}) : f32[64, 64]\n", length + i + 2, length + i + 1, length - i + 1);
  return text + fmt::format("return %{}\n", 2 * length + 1);
}

TEST(Recompute, StashesWhatCostsLessToCopy) {
  constexpr cost::Device kMachine{
      .full_flops_per_second = 1e9, .bytes_per_second = 1e12, .link_bytes_per_second = 1e12};
  ir::Graph graph = graph_of(costly(12));
  const int64_t budget = peak_bytes(graph, no_workspace) / 2;
  const RecomputeResult result =
      recompute(graph, budget, no_workspace, kMachine, {.activations = true, .min_bytes = 64});
  ir::verify(graph, "recompute");
  EXPECT_TRUE(result.fits);
  EXPECT_GT(result.num_stashed, 0);
  EXPECT_EQ(result.num_recomputed, 0);
  EXPECT_EQ(result.extra_flops, 0);
  EXPECT_LE(peak_bytes(graph, no_workspace), budget);
}

TEST(Recompute, MakesAgainWhatStandsInThePlaceOfAnother) {
  // Each sum stands where its matmul was, and is read again on the way back.
  std::string text = "input %0 \"x\" : f32[64, 64]\nparameter %1 \"w\" : f32[64, 64]\n";
  constexpr int kLength = 8;
  int id = 2;
  std::vector<int> sums = {0};
  for (int i = 0; i < kLength; ++i, id += 2) {
    text += fmt::format("%{} = matmul(%{}, %1) {{transpose_a=0, transpose_b=0}} : f32[64, 64]\n", id,
                        sums.back());
    text += fmt::format("%{} = add(%{}, %{}) : f32[64, 64]\n", id + 1, id, sums.back());
    sums.push_back(id + 1);
  }
  for (int i = kLength; i > 0; --i, ++id)
    text += fmt::format("%{} = mul(%{}, %{}) : f32[64, 64]\n", id, id - 1, sums[static_cast<size_t>(i)]);
  ir::Graph graph = graph_of(text + fmt::format("return %{}\n", id - 1));
  const int64_t budget = peak_bytes(graph, no_workspace) * 3 / 4;
  EXPECT_TRUE(recompute(graph, budget, no_workspace).fits);
  ir::verify(graph, "recompute");
  EXPECT_LE(peak_bytes(graph, no_workspace), budget);
}

/// After the first peak %7 reads a copy of %3; after the second one %8 is made again from %7 and from %4,
/// which needs %3 once more.
constexpr const char* kTwoPeaks = R"(input %0 "x" : f32[1024]
input %1 "wide" : f32[8192]
input %2 "narrower" : f32[8000]
%3 = square(%0) : f32[1024]
%4 = mul(%0, %3) : f32[1024]
%5 = exp(%1) : f32[8192]
%6 = sum_all(%5) : f32[]
%7 = mul(%0, %3) : f32[1024]
%8 = mul(%7, %4) : f32[1024]
%9 = square(%2) : f32[8000]
%10 = sum_all(%9) : f32[]
%11 = mul(%8, %3) : f32[1024]
return %6, %10, %11
)";

TEST(Recompute, MakesAgainWhatReadsAnEarlierCopy) {
  ir::Graph graph = graph_of(kTwoPeaks);
  const int64_t budget = peak_bytes(graph, no_workspace) - 4096;
  const RecomputeResult result = recompute(graph, budget, no_workspace);
  ir::verify(graph, "recompute");
  EXPECT_TRUE(result.fits);
  EXPECT_EQ(result.num_recomputed, 5);
  EXPECT_LE(peak_bytes(graph, no_workspace), budget);
}

TEST(Hoist, MovesNodesToWhereTheyCanRun) {
  ir::Graph graph = graph_of(std::string(kUpdate) + "%5 = mul(%0, %1) : f32[256]\n%6 = exp(%5) : f32[256]\n" +
                             "%7 = mul(%6, %1) : f32[256]\n%8 = sum_squares(%5) : f32[1]\n" +
                             "%9 = accumulate(%1, %5) : f32[256]\nreturn %7, %8\n");
  hoist(graph, 3);
  ir::verify(graph, "hoist");
  // The weight may move once nothing reads it any more.
  EXPECT_EQ(ops_of(graph), (std::vector<std::string>{"mul", "sum_squares", "exp", "mul", "accumulate"}));
}

}  // namespace
}  // namespace hearth::passes
