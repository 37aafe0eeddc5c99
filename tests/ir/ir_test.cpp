#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "base/error.h"
#include "graph_text.h"
#include "ir/graph.h"
#include "ir/verify.h"

namespace hearth::ir {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kLinear = R"(input %0 "x" : f32[4, 8]
parameter %1 "fc.weight" : f32[3, 8]
%2 = matmul(%0, %1) {transpose_a=0, transpose_b=1} : f32[4, 3]  # fc
%3 = relu(%2) : f32[4, 3]
return %3
)";

TEST(Text, PrintsWhatItParsed) {
  EXPECT_EQ(print(graph_of(kLinear)), kLinear);
  const std::string every_form = R"(input %0 "images" : bf16[2, 4, 4, 3]
scalar %1 "scale" : f32[]
state %2 "momentum" : f32[3, 3, 3, 5]
parameter %3 "w" : bf16[3, 3, 3, 5]
input %4 "positions" : i32[2]
%5 = conv2d(%0, %3, none, none) {stride=1, padding=1, activation="relu"} : bf16[2, 4, 4, 5]
%6, %7 = max_pool2d(%5) {kernel=2, stride=2, padding=0} : bf16[2, 2, 2, 5], u8[2, 2, 2, 5]  # pool 1
%8 = reshape(%6) {shape=[2, 20]} : bf16[2, 20]
%9 = rope_table(%4) {inv_freq=[1.0, 0.01, 1e-05], scale=1.5} : f32[2, 6]
return %8, %7, %9
)";
  EXPECT_EQ(print(graph_of(every_form)), every_form);
}

TEST(Text, RenumbersByLine) {
  const std::string sparse = R"(input %7 "x" : f32[2]
%40 = relu(%7) : f32[2]
return %40)";
  EXPECT_EQ(renumbered(sparse), "input %0 \"x\" : f32[2]\n%1 = relu(%0) : f32[2]\nreturn %1\n");
}

std::string refusal(const std::string& text) {
  try {
    graph_of(text);
  } catch (const UserError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(Text, NamesTheLineOfAMistake) {
  const std::string x = "input %0 \"x\" : f32[2, 3]\n";
  EXPECT_THAT(refusal("input %0 \"x\" : f33[2]"), HasSubstr("line 1: unknown dtype 'f33'"));
  EXPECT_THAT(refusal("input %0 \"x : f32[2]"), HasSubstr("line 1: expected a closing quote"));
  EXPECT_THAT(refusal("input %0 \"x\" : f32[2"), StartsWith("line 1: expected ','"));
  EXPECT_THAT(refusal("input %0 \"x\" : f32[99999999999999999999]"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("input %0 \"x\" : f32[9999999999, 9999999999]"), HasSubstr("line 1"));
  EXPECT_THAT(refusal("input %0 \"x\" : f32[-1]"), HasSubstr("line 1"));
  EXPECT_THAT(refusal(x + x), HasSubstr("line 2: %0 is defined twice"));
  EXPECT_THAT(refusal(x + "%1 = rleu(%0) : f32[2, 3]"), HasSubstr("line 2: unknown op 'rleu'"));
  EXPECT_THAT(refusal(x + "%1 = relu(%2) : f32[2, 3]"), HasSubstr("line 2: %2 is not defined yet"));
  EXPECT_THAT(refusal(x + "%1 = relu(%0, %0) : f32[2, 3]"),
              HasSubstr("line 2: relu: expected inputs (a), got 2"));
  EXPECT_THAT(refusal(x + "%1 = relu(%0) : f32[2, 4]"), HasSubstr("line 2: output 0 is f32[2, 3]"));
  EXPECT_THAT(refusal(x + "%1, %2 = relu(%0) : f32[2, 3]"),
              HasSubstr("line 2: relu has 1 outputs, but the text names 2"));
  EXPECT_THAT(refusal(x + "%1 = reshape(%0) {shape=[7]} : f32[7]"), HasSubstr("line 2"));
  EXPECT_THAT(refusal(x + "return %9"), HasSubstr("line 2: %9 is not defined yet"));
}

std::string fault_after(const std::function<void(Graph&)>& change) {
  Graph graph = graph_of(kLinear);
  change(graph);
  try {
    verify(graph, "my_pass");
  } catch (const InternalError& error) {
    return error.what();
  }
  return "no fault";
}

TEST(Verify, AcceptsWhatThePassesStartFrom) {
  EXPECT_EQ(fault_after([](Graph&) {}), "no fault");
}

TEST(Verify, NamesThePassAndTheNodeOfAFault) {
  const std::string fault = fault_after([](Graph& graph) { std::swap(graph.nodes[0], graph.nodes[1]); });
  EXPECT_THAT(fault, HasSubstr("after my_pass: relu: input 'a' is read before it is computed"));
  EXPECT_THAT(fault, HasSubstr("> %3 = relu(%2)"));
}

TEST(Verify, FindsEachKindOfFault) {
  EXPECT_THAT(fault_after([](Graph& g) { g.nodes[1].inputs[0] = 99; }), HasSubstr("out of range"));
  EXPECT_THAT(
      fault_after([](Graph& g) { g.nodes[0].inputs.pop_back(); }),
      HasSubstr(
          "after my_pass: matmul: input 'b' is missing: expected inputs (a, b, bias?, residual?), got 1"));
  EXPECT_THAT(fault_after([](Graph& g) { g.values[2].type.dtype = DType::bf16; }), HasSubstr("type differs"));
  EXPECT_THAT(fault_after([](Graph& g) { g.values[3].producer = 0; }), HasSubstr("another producer"));
  EXPECT_THAT(fault_after([](Graph& g) { g.nodes[1].outputs = {2}; }), HasSubstr("computed twice"));
  EXPECT_THAT(fault_after([](Graph& g) { g.nodes.pop_back(); }), HasSubstr("never computed"));
  EXPECT_THAT(fault_after([](Graph& g) { g.nodes[1].outputs.clear(); }), HasSubstr("number of outputs"));
}

TEST(Verify, FindsAReadOfOverwrittenBytes) {
  Graph graph = graph_of(R"(parameter %0 "w" : f32[3]
input %1 "gradient" : f32[3]
scalar %2 "rate" : f32[]
scalar %3 "clip" : f32[]
state %4 "momentum" : f32[3]
%5, %6 = sgd_update(%0, %1, %2, %3, %4) {momentum=0.9, nesterov=0, weight_decay=0.0} : f32[3], f32[3]
%7 = relu(%0) : f32[3]
return %7
)");
  EXPECT_THROW(verify(graph, "test"), InternalError);
  graph.nodes[1].inputs[0] = graph.nodes[0].outputs[0];
  EXPECT_NO_THROW(verify(graph, "test"));
}

TEST(Graph, DeadNodesGoAndWritersStay) {
  Graph graph = graph_of(R"(parameter %0 "w" : f32[3]
input %1 "gradient" : f32[3]
scalar %2 "rate" : f32[]
scalar %3 "clip" : f32[]
state %4 "momentum" : f32[3]
%5 = relu(%1) : f32[3]
%6, %7 = sgd_update(%0, %1, %2, %3, %4) {momentum=0.9, nesterov=0, weight_decay=0.0} : f32[3], f32[3]
)");
  graph.remove_dead_nodes();
  ASSERT_EQ(graph.nodes.size(), 1U);
  EXPECT_EQ(graph.nodes[0].op->name, "sgd_update");
  EXPECT_NO_THROW(verify(graph, "remove_dead_nodes"));
}

}  // namespace
}  // namespace hearth::ir
