// Tests generated from the op list: every op with every one of its samples.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "base/error.h"
#include "base/philox.h"
#include "base/threads.h"
#include "ir/text.h"
#include "ir/verify.h"
#include "op_sample.h"
#include "ops/reference.h"

namespace hearth::ops {
namespace {

class OpTest : public OpSample {
 protected:
  std::vector<std::vector<std::byte>> run_kernel(int num_threads) const {
    const std::vector<ir::Type> in_types = graph_.input_types(node());
    std::vector<ir::Type> out_types;
    for (const ir::ValueId id : node().outputs) out_types.push_back(graph_.type(id));
    const ir::Kernel kernel =
        op_->cpu({.attrs = node().attrs, .in = in_types, .out = out_types, .num_threads = num_threads});
    std::vector<std::vector<std::byte>> inputs;
    std::vector<void*> in;
    for (const ir::ValueId id : node().inputs) {
      inputs.push_back(id == ir::kNone ? std::vector<std::byte>() : store(graph_.type(id), values_.at(id)));
      in.push_back(id == ir::kNone ? nullptr : inputs.back().data());
    }
    std::vector<std::vector<std::byte>> outputs;
    for (size_t k = 0; k < out_types.size(); ++k) {
      const bool writes = k < op_->writes.size() && op_->writes[k] >= 0;
      outputs.push_back(writes ? inputs[static_cast<size_t>(op_->writes[k])]
                               : std::vector<std::byte>(
                                     static_cast<size_t>(out_types[k].num_bytes()) + kGuardBytes, kGuard));
      if (writes) in[static_cast<size_t>(op_->writes[k])] = outputs[k].data();
    }
    std::vector<void*> out;
    for (auto& bytes : outputs) out.push_back(bytes.data());
    for (size_t k = 0; k < op_->writes.size() && k < outputs.size(); ++k) {
      if (op_->writes[k] >= 0) in[static_cast<size_t>(op_->writes[k])] = outputs[k].data();
    }
    std::vector<std::byte> workspace(static_cast<size_t>(kernel.workspace_bytes) + kGuardBytes, kGuard);
    ThreadPool threads(num_threads);
    std::byte* given = kernel.workspace_bytes == 0 ? nullptr : workspace.data();
    kernel.run({.in = in, .out = out, .workspace = given, .threads = &threads});
    outputs.push_back(workspace);
    for (const auto& bytes : outputs) {
      for (size_t i = bytes.size() - kGuardBytes; i < bytes.size(); ++i)
        EXPECT_EQ(bytes[i], kGuard) << "guard bytes";
    }
    outputs.pop_back();
    return outputs;
  }

  int64_t workspace_bytes(const ir::Node& node) const {
    return op_->cpu(ir::NodeTypes(graph_, node).view(node, 2)).workspace_bytes;
  }

  void expect_reference(int num_threads) const {
    SCOPED_TRACE(std::to_string(num_threads) + " threads");
    const auto got = run_kernel(num_threads);
    EXPECT_EQ(got, run_kernel(num_threads)) << "not the same bits twice";
    OpSample::expect_reference(got);
  }
};

TEST_P(OpTest, KernelMatchesTheReference) { expect_reference(2); }

TEST_P(OpTest, ThreadsDoNotChangeTheBits) {
  const auto alone = run_kernel(1);
  for (const int num_threads : {2, 3, 8})
    EXPECT_TRUE(run_kernel(num_threads) == alone) << num_threads << " threads make other bits than one";
}

TEST_P(OpTest, SmallerMakesTheSameInLessWorkspaceAndMoreTime) {
  if (op_->smaller == nullptr) return;
  for (int round = 0;; ++round) {
    ASSERT_LT(round, 64);
    const ir::Node before = node();
    const auto attrs = op_->smaller(ir::NodeTypes(graph_, before).view(before));
    if (!attrs) return;
    graph_.nodes[0].attrs = *attrs;
    // Some ops need less on GPUs only: tests/gpu/kernels_test.cpp.
    EXPECT_LE(workspace_bytes(node()), workspace_bytes(before));
    const ir::Cost smaller = ir::cost_of(graph_, node()), cost = ir::cost_of(graph_, before);
    EXPECT_TRUE(smaller.bytes > cost.bytes || smaller.filled < cost.filled);
    EXPECT_EQ(smaller.flops, cost.flops);
    expect_reference(2);
  }
}

/// The sum of every floating output times a fixed random weight, in float64.
double weighted_sum(const ir::Graph& graph, const ir::Node& node,
                    const std::map<ir::ValueId, std::vector<double>>& leaves,
                    const std::vector<double>& weights) {
  auto values = leaves;
  evaluate_reference(graph, values);
  double sum = 0;
  const std::vector<double>& out = values.at(node.outputs[0]);
  for (size_t i = 0; i < out.size(); ++i) sum += out[i] * weights[i];
  return sum;
}

TEST_P(OpTest, GradientMatchesCentralDifferences) {
  // The gradient of a rounding is a straight-through estimate, not a derivative.
  if (op_->vjp == nullptr || op_->name.starts_with("fake_quantize")) return;
  for (const auto& [id, values] : values_) {
    if (graph_.type(id).dtype != DType::f32 && is_floating(graph_.type(id).dtype)) return;
  }
  const ir::Graph forward = graph_;
  ir::Graph both = graph_;
  const ir::Type out_type = both.type(node().outputs[0]);
  if (!is_floating(out_type.dtype) || out_type.dtype != DType::f32) return;
  const ir::ValueId cotangent = both.add_value("", out_type, ir::Role::parameter);
  PhiloxSequence random(23, 1);
  std::vector<double> weights(static_cast<size_t>(out_type.shape.num_elements()));
  for (double& weight : weights) weight = static_cast<double>(random.normal());
  std::vector<ir::ValueId> grad_out(node().outputs.size(), ir::kNone);
  grad_out[0] = cotangent;
  const ir::Node copy = node();
  const auto grad_in = op_->vjp({.graph = both, .node = copy, .grad_out = grad_out, .op = ops::op});
  ASSERT_EQ(grad_in.size(), copy.inputs.size());
  auto values = values_;
  values[cotangent] = weights;
  evaluate_reference(both, values);
  for (size_t k = 0; k < grad_in.size(); ++k) {
    if (grad_in[k] == ir::kNone || copy.inputs[k] == ir::kNone) continue;
    const std::vector<double>& gradient = values.at(grad_in[k]);
    ASSERT_EQ(gradient.size(), values_.at(copy.inputs[k]).size());
    double scale = 1;
    for (const double value : gradient) scale = std::max(scale, std::fabs(value));
    const size_t stride = std::max<size_t>(1, gradient.size() / 12);
    for (size_t i = 0; i < gradient.size(); i += stride) {
      constexpr double kStep = 1e-5;
      auto moved = values_;
      moved[copy.inputs[k]][i] += kStep;
      const double above = weighted_sum(forward, copy, moved, weights);
      moved[copy.inputs[k]][i] -= 2 * kStep;
      const double below = weighted_sum(forward, copy, moved, weights);
      ASSERT_NEAR(gradient[i], (above - below) / (2 * kStep), 1e-5 * scale)
          << op_->name << " input " << k << " element " << i;
    }
  }
}

TEST(FakeQuantize, PassesTheGradientOn) {
  ir::Graph graph;
  const ir::Type type{.dtype = DType::f32, .shape = {2, 32}};
  const ir::ValueId x = graph.add_value("x", type, ir::Role::parameter);
  const ir::ValueId dy = graph.add_value("dy", type, ir::Role::input);
  graph.add1(op("fake_quantize"), {x}, {{"format", std::string("q4_0")}, {"first_step", int64_t{0}}}, "");
  const ir::Node node = graph.nodes[0];
  const std::vector<ir::ValueId> grads =
      node.op->vjp({.graph = graph, .node = node, .grad_out = std::vector{dy}, .op = ops::op});
  EXPECT_EQ(grads, std::vector{dy});
}

TEST_P(OpTest, TextFormRoundTrips) {
  graph_.outputs = {node().outputs[0]};
  ir::verify(graph_, "the sample");
  const std::string text = ir::print(graph_);
  EXPECT_EQ(ir::print(ir::parse(text, find_op)), text);
}

INSTANTIATE_TEST_SUITE_P(Ops, OpTest, testing::ValuesIn(cases_of([](const ir::OpDef&) { return true; })),
                         name_of);

TEST(OpList, EveryRecordIsComplete) {
  for (const ir::OpDef* op : op_list()) {
    EXPECT_FALSE(op->doc.empty()) << op->name;
    EXPECT_NE(op->infer, nullptr) << op->name;
    EXPECT_NE(op->cpu, nullptr) << op->name;
    EXPECT_TRUE(op->vjp != nullptr || !op->no_vjp_because.empty())
        << op->name << ": no gradient and no reason";
    EXPECT_TRUE(op->reference != nullptr || !op->no_reference_because.empty()) << op->name;
    EXPECT_NE(op->samples, nullptr) << op->name << " has no samples";
    EXPECT_EQ(find_op(op->name), op) << op->name << " is listed twice";
  }
}

TEST(OpList, EachInputHasANameOfItsOwn) {
  for (const ir::OpDef* op : op_list()) {
    std::set<std::string_view> names;
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      const std::string_view name = op->input_name(i);
      EXPECT_THAT(std::string(name), testing::MatchesRegex("[a-z][a-z0-9_]*")) << op->name;
      EXPECT_TRUE(names.insert(name).second) << op->name << " has two inputs '" << name << "'";
      EXPECT_EQ(op->input_index(name), i) << op->name;
      EXPECT_TRUE(!op->inputs[i].ends_with('+') || i + 1 == op->inputs.size()) << op->name;
    }
  }
}

TEST(OpList, SamplesHaveTheInputsThatTheRecordNames) {
  for (const ir::OpDef* op : op_list()) {
    for (const ir::Sample& sample : op->samples()) {
      std::vector<ir::ValueId> ids;
      for (const ir::SampleInput& input : sample.in)
        ids.push_back(input.fill == ir::SampleInput::Fill::absent ? ir::kNone : 0);
      EXPECT_EQ(op->inputs_error(ids), "") << op->name;
    }
  }
}

/// What the verifier and the reader of the text form say of a graph.
std::vector<std::string> refusals(const ir::Graph& graph) {
  std::vector<std::string> found;
  try {
    ir::verify(graph, "the change");
  } catch (const InternalError& error) {
    found.emplace_back(error.what());
  }
  try {
    ir::parse(ir::print(graph), find_op);
  } catch (const UserError& error) {
    found.emplace_back(error.what());
  }
  return found;
}

TEST(OpList, AMissingInputIsRefusedByItsName) {
  for (const ir::OpDef* op : op_list()) {
    const DrawnSample whole = draw_sample(*op, op->samples()[0], 0);
    const auto refused = [&](std::vector<ir::ValueId> inputs) {
      ir::Graph graph = whole.graph;
      graph.nodes.back().inputs = std::move(inputs);
      return refusals(graph);
    };
    const std::vector<ir::ValueId> all = whole.node().inputs;
    for (size_t i = 0; i < op->inputs.size(); ++i) {
      if (op->is_optional(i)) continue;
      const std::string sentence = fmt::format("{}: input '{}' is missing", op->name, op->input_name(i));
      std::vector<ir::ValueId> with_none = all;
      with_none[i] = ir::kNone;
      EXPECT_THAT(refused(with_none),
                  testing::AllOf(testing::SizeIs(2), testing::Each(testing::HasSubstr(sentence))));
      const std::vector<ir::ValueId> shorter(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(i));
      EXPECT_THAT(refused(shorter),
                  testing::AllOf(testing::SizeIs(2), testing::Each(testing::HasSubstr(sentence))));
    }
    if (all.empty() || op->inputs.back().ends_with('+')) continue;
    const std::vector<ir::ValueId> longer(op->inputs.size() + 1, all[0]);
    EXPECT_THAT(refused(longer),
                testing::AllOf(testing::SizeIs(2), testing::Each(testing::HasSubstr(fmt::format(
                                                       "{}: expected inputs ({}), got {}", op->name,
                                                       fmt::join(op->inputs, ", "), longer.size())))));
  }
}

}  // namespace
}  // namespace hearth::ops
