#include "exec/device/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

#include "backend/gpu/emu/checker.h"
#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "ops/gpu_support.h"
#include "ops/op_list.h"
#include "temporary_folder.h"

namespace hearth::exec {
namespace {

using testing::Contains;
using testing::HasSubstr;

__global__ void one_more(const float* in, float* out, int64_t count) {
  for (int64_t i = threadIdx.x; i < count; i += blockDim.x) out[i] = in[i] + (i == 3 ? 1.0F : 0.0F);
}
/// Wrong in one element of those that have so many.
ir::Kernel wrong_kernel(const ir::NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  return {.run = [=](const ir::KernelArgs& args) {
    rt::launch(one_more, {1, 32}, args.stream->handle(), ops::input_of<float>(args, 0),
               ops::output_of<float>(args, 0), count);
  }};
}

__global__ void steps_out() { emu::fail("it stepped out"); }
ir::Kernel faulty_kernel(const ir::NodeView&) {
  return {.run = [](const ir::KernelArgs& args) { rt::launch(steps_out, {1, 1}, args.stream->handle()); }};
}

class SelfTests : public testing::Test {
 protected:
  SelfTests() {
    wrong_ = faulty_ = *ops::find_op("fetch");
    wrong_.name = "wrong";
    wrong_.gpu = wrong_kernel;
    faulty_.name = "faulty";
    faulty_.gpu = faulty_kernel;
    wrong_.transfer = faulty_.transfer = ir::Transfer::none;
  }
  ~SelfTests() override { emu::gpus() = {{}}; }

  ir::Graph graph_of(std::initializer_list<const ir::OpDef*> ops) const {
    ir::Graph graph;
    ir::ValueId value = graph.add_value("x", {.dtype = DType::f32, .shape = {4, 4}}, ir::Role::input);
    for (const ir::OpDef* op : ops) value = graph.add1(*op, {value});
    graph.outputs = {value};
    return graph;
  }
  static std::vector<std::string> names(const SelfTest& test) {
    std::vector<std::string> names;
    for (const auto& [kernel, what] : test.failures()) names.push_back(kernel);
    return names;
  }

  ir::OpDef wrong_, faulty_;
  TemporaryFolder folder_;
};

TEST_F(SelfTests, NameWhatIsWrongAndWhatFaultsAndGoOn) {
  ir::Graph graph = graph_of({&faulty_, ops::find_op("relu"), &wrong_});
  SelfTest test(0, {.when = SelfTest::When::always});
  test.cover(graph);
  EXPECT_EQ(names(test), (std::vector<std::string>{"faulty(f32) -> f32", "wrong(f32) -> f32"}));
  EXPECT_THAT(test.failures().at("faulty(f32) -> f32"), HasSubstr("it stepped out"));
  EXPECT_THAT(test.failures().at("wrong(f32) -> f32"), HasSubstr("element 3 of output 0"));
  for (const ir::Node& node : graph.nodes) {
    const ir::NodeTypes types(graph, node);
    EXPECT_EQ(test.trusts(*node.op, types.view(node)), node.op->name == "relu") << node.op->name;
  }
}

TEST_F(SelfTests, EveryOpWithAKernelIsRight) {
  SelfTest test(0, {.when = SelfTest::When::always});
  int num_kernels = 0;
  for (const ir::OpDef* op : ops::op_list()) {
    if (op->gpu == nullptr || op->transfer != ir::Transfer::none) continue;
    ir::Graph graph;
    std::vector<ir::ValueId> in;
    const ir::Sample sample = op->samples()[0];
    for (const ir::SampleInput& input : sample.in) {
      const bool absent = input.fill == ir::SampleInput::Fill::absent;
      in.push_back(absent ? ir::kNone : graph.add_value("", input.type, ir::Role::input));
    }
    graph.add(*op, in, sample.attrs);
    test.cover(graph);
    EXPECT_EQ(test.num_tried(), ++num_kernels) << op->name;
  }
  EXPECT_EQ(names(test), std::vector<std::string>());
}

TEST_F(SelfTests, AreRememberedForTheGpuAndItsDriver) {
  ir::Graph graph = graph_of({ops::find_op("relu"), &wrong_});
  const auto run = [&](SelfTest::When when) {
    SelfTest test(0, {.when = when, .folder = folder_.path()});
    test.cover(graph);
    EXPECT_EQ(names(test).size(), when == SelfTest::When::never ? 0U : 1U);
    return test.num_tried();
  };
  EXPECT_EQ(run(SelfTest::When::never), 0);
  EXPECT_EQ(run(SelfTest::When::once), 2);
  EXPECT_EQ(run(SelfTest::When::once), 0);
  EXPECT_EQ(run(SelfTest::When::always), 2);
  emu::gpus() = {{}, {}};
  SelfTest other(1, {.when = SelfTest::When::once, .folder = folder_.path()});
  other.cover(graph);
  EXPECT_EQ(other.num_tried(), 2) << "another GPU is another matter";
}

TEST_F(SelfTests, AKernelThatEndedTheProgramIsNotTriedAgain) {
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest(0, {.when = SelfTest::When::once, .folder = folder_.path()}).cover(graph);
  for (const auto& file : fs::directory_iterator(folder_.path()))
    std::ofstream(file.path()) << "trying\trelu(f32) -> f32\t\n";
  SelfTest next(0, {.when = SelfTest::When::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(next.num_tried(), 0);
  EXPECT_THAT(names(next), Contains("relu(f32) -> f32"));
}

TEST_F(SelfTests, WhatAnotherProcessIsTryingIsTriedHereToo) {
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest(0, {.when = SelfTest::When::once, .folder = folder_.path()}).cover(graph);
  for (const auto& file : fs::directory_iterator(folder_.path()))
    std::ofstream(file.path()) << "trying\trelu(f32) -> f32\t" << getpid() << "\n";
  SelfTest next(0, {.when = SelfTest::When::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(next.num_tried(), 1);
  EXPECT_EQ(names(next), std::vector<std::string>());
}

TEST_F(SelfTests, AWrongWayIsReplacedByTheUsualOne) {
  const auto covered = [](SelfTest& test) {
    ir::Graph graph;
    const auto value = [&] {
      return graph.add_value("", {.dtype = DType::f32, .shape = {4, 4}}, ir::Role::input);
    };
    graph.add(*ops::find_op("matmul"), {value(), value()}, {{"way", std::string("library")}});
    test.cover(graph);
    const ir::Node& node = graph.nodes[0];
    const ir::NodeTypes types(graph, node);
    EXPECT_TRUE(test.trusts(*node.op, types.view(node)));
    return node.attrs.text("way");
  };
  emu::gpus() = {{.library = emu::GpuSettings::Library::right}};
  SelfTest right(0, {.when = SelfTest::When::always});
  EXPECT_EQ(covered(right), "library");
  EXPECT_EQ(right.num_tried(), 1);
  EXPECT_EQ(names(right), std::vector<std::string>());
  for (const auto library : {emu::GpuSettings::Library::wrong, emu::GpuSettings::Library::failing}) {
    emu::gpus() = {{.library = library}};
    SelfTest test(0, {.when = SelfTest::When::always});
    EXPECT_EQ(covered(test), "");
    EXPECT_EQ(test.num_tried(), 2);
    EXPECT_EQ(names(test), std::vector<std::string>{"matmul(f32, f32) -> f32, way library"});
  }
}

TEST_F(SelfTests, WorkWhereNothingCanBeRemembered) {
  std::ofstream(folder_.path() / "file") << "no folder";
  SelfTest test(0, {.when = SelfTest::When::once, .folder = folder_.path() / "file"});
  ir::Graph graph = graph_of({&wrong_});
  test.cover(graph);
  EXPECT_EQ(names(test).size(), 1U);
}

TEST_F(SelfTests, AFullGpuIsNoFaultOfItsKernels) {
  emu::gpus() = {{.memory_bytes = 100}};
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest test(0, {.when = SelfTest::When::once, .folder = folder_.path()});
  EXPECT_THROW(test.cover(graph), UserError);
  EXPECT_EQ(names(test), std::vector<std::string>());
  emu::gpus() = {{}};
  SelfTest next(0, {.when = SelfTest::When::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(names(next), std::vector<std::string>()) << "what could not be tried is still open";
}

}  // namespace
}  // namespace hearth::exec
