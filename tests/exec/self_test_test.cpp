#include "exec/device/self_test.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <set>

#include "backend/gpu/emu/checker.h"
#include "backend/gpu/emu/stream.h"
#include "base/error.h"
#include "exec/device/gpu_choice.h"
#include "exec/device/trial.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/op_list.h"
#include "planted_kernel.h"
#include "temporary_folder.h"

namespace hearth::exec {
namespace {

using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::StartsWith;

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

/// Leaves out what comes after its first blocks.
__global__ void cut_off(const float* in, float* out, int64_t count) {
  const auto i = static_cast<int64_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = in[i] > 0 ? in[i] : 0;
}
ir::Kernel cut_off_kernel(const ir::NodeView& node) {
  const int64_t count = node.in_type(0).shape.num_elements();
  const int64_t blocks = std::min<int64_t>((count + 255) / 256, 1000);
  return {.run = [=](const ir::KernelArgs& args) {
    rt::launch(cut_off, {blocks, 256}, args.stream->handle(), ops::input_of<float>(args, 0),
               ops::output_of<float>(args, 0), count);
  }};
}

/// a b^T without the last term.
__global__ void forget(const rt::bf16* a, const rt::bf16* b, rt::bf16* c, int columns, int terms) {
  const auto row = static_cast<int>(blockIdx.x), column = static_cast<int>(threadIdx.x);
  float sum = 0;
  for (int term = 0; term + 1 < terms; ++term)
    sum += rt::to_float(a[row * terms + term]) * rt::to_float(b[column * terms + term]);
  c[row * columns + column] = rt::from_float<rt::bf16>(sum);
}
/// Forgets a term of long sums.
ir::Kernel forgetful_matmul(const ir::NodeView& node) {
  const Shape &a = node.in_type(0).shape, &b = node.in_type(1).shape;
  if (a[1] < 4096) return ops::matmul_gpu(node);
  return {.run = [rows = a[0], columns = static_cast<int>(b[0]),
                  terms = static_cast<int>(a[1])](const ir::KernelArgs& args) {
    rt::launch(forget, {rows, columns}, args.stream->handle(), ops::input_of<rt::bf16>(args, 0),
               ops::input_of<rt::bf16>(args, 1), ops::output_of<rt::bf16>(args, 0), columns, terms);
  }};
}

__global__ void steps_out() { emu::fail("it stepped out"); }
ir::Kernel faulty_kernel(const ir::NodeView&) {
  return {.run = [](const ir::KernelArgs& args) { rt::launch(steps_out, {1, 1}, args.stream->handle()); }};
}

const ops::GpuKernels kPlanted = {{.op = "wrong", .one = wrong_kernel},
                                  {.op = "faulty", .one = faulty_kernel}};

class SelfTests : public testing::Test {
 protected:
  SelfTests() {
    wrong_ = faulty_ = *ops::find_op("fetch");
    wrong_.name = "wrong";
    faulty_.name = "faulty";
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
  static ir::Graph graph_of(const ir::OpDef& op, const ir::Sample& sample) {
    ir::Graph graph;
    std::vector<ir::ValueId> in;
    for (const ir::SampleInput& input : sample.in) {
      const bool absent = input.fill == ir::SampleInput::Fill::absent;
      in.push_back(absent ? ir::kNone : graph.add_value("", input.type, ir::Role::input));
    }
    graph.add(op, in, sample.attrs);
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

TEST_F(SelfTests, EndAtOnceWhereTheModuleHasNoCodeForTheGpu) {
  emu::gpus() = {{.no_code = true}};
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  try {
    test.cover(graph);
    ADD_FAILURE() << "kernels were tested that cannot run";
  } catch (const UserError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("finds no code for emulated GPU 0 (emu) in this build of Hearth (no kernel"));
    EXPECT_THAT(error.what(), HasSubstr("HEARTH_GPU_ARCHITECTURES=emu tools/build --gpu "));
  }
}

TEST_F(SelfTests, NameWhatIsWrongAndWhatFaultsAndGoOn) {
  ir::Graph graph = graph_of({&faulty_, ops::find_op("relu"), &wrong_});
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
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
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  int num_tested = 0;
  for (const ir::OpDef* op : ops::op_list()) {
    if (!op->gpu || op->transfer != ir::Transfer::none) continue;
    ir::Graph graph = graph_of(*op, op->samples()[0]);
    test.cover(graph);
    EXPECT_GT(test.num_tested(), num_tested) << op->name;
    num_tested = test.num_tested();
  }
  EXPECT_EQ(names(test), std::vector<std::string>());
}

TEST_F(SelfTests, EverySampleIsRightAsANodeOfItsOwnSize) {
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  std::set<std::string_view> names_of_ops;
  for (const ir::OpDef* op : ops::op_list()) {
    if (!op->gpu || op->transfer != ir::Transfer::none) continue;
    if (op->elementwise != nullptr) continue;
    for (const ir::Sample& sample : op->samples()) {
      ir::Graph graph = graph_of(*op, sample);
      const ir::NodeTypes types(graph, graph.nodes[0]);
      if (!node_test_of(*op, types.view(graph.nodes[0]))) continue;
      names_of_ops.insert(op->name);
      test.cover(graph);
    }
  }
  EXPECT_EQ(names(test), std::vector<std::string>());
  EXPECT_THAT(names_of_ops,
              ElementsAre("attention", "attention_grad", "conv2d", "conv2d_grad_input", "conv2d_grad_weight",
                          "embedding", "fused_elementwise", "glu", "head_cross_entropy",
                          "head_cross_entropy_grad", "head_cross_entropy_train", "layer_norm", "matmul",
                          "quantized_linear", "rms_norm", "softmax", "softmax_cross_entropy"));
}

TEST_F(SelfTests, WhatIsWrongInALargeShapeAloneIsNamedWithIt) {
  const ir::OpDef& cut = *ops::find_op("relu");
  const PlantedKernel planted("relu", cut_off_kernel);
  const auto covered = [&](const Shape& shape) {
    ir::Graph graph;
    graph.add1(cut, {graph.add_value("x", {.dtype = DType::f32, .shape = shape}, ir::Role::input)});
    SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
    test.cover(graph);
    const ir::NodeTypes types(graph, graph.nodes[0]);
    EXPECT_EQ(test.trusts(cut, types.view(graph.nodes[0])), test.failures().empty());
    return names(test);
  };
  EXPECT_THAT(covered({100, 100}), IsEmpty());
  EXPECT_THAT(covered({300, 1000}), ElementsAre("relu(f32[300, 1000]) -> f32[300, 1000]"));
}

TEST_F(SelfTests, ALostTermOfALongSumIsWrong) {
  const ir::OpDef& matmul = *ops::find_op("matmul");
  const auto covered = [&] {
    ir::Graph graph;
    const auto value = [&](const Shape& shape) {
      return graph.add_value("", {.dtype = DType::bf16, .shape = shape}, ir::Role::input);
    };
    graph.add(matmul, {value({40, 4096}), value({48, 4096})}, {{"transpose_b", int64_t{1}}});
    SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
    test.cover(graph);
    return names(test);
  };
  EXPECT_THAT(covered(), IsEmpty());
  const PlantedKernel planted("matmul", forgetful_matmul);
  EXPECT_THAT(covered(),
              ElementsAre("matmul(bf16[40, 4096], bf16[48, 4096]) -> bf16[40, 48], transpose_b 1"));
}

TEST_F(SelfTests, WhatNothingCanBeTriedOnIsNotRight) {
  ir::OpDef bare = *ops::find_op("scale_rows");
  bare.samples = [] { return std::vector<ir::Sample>(); };
  ir::Graph graph = graph_of(*ops::find_op("scale_rows"), ops::find_op("scale_rows")->samples()[0]);
  graph.nodes[0].op = &bare;
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  test.cover(graph);
  ASSERT_EQ(test.failures().size(), 1U);
  EXPECT_THAT(test.failures().begin()->first, StartsWith("scale_rows(f32["));
  EXPECT_EQ(test.failures().begin()->second, "there is no test for it");
  const ir::NodeTypes types(graph, graph.nodes[0]);
  EXPECT_FALSE(test.trusts(bare, types.view(graph.nodes[0])));
  SelfTest next(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(next.failures(), test.failures()) << "the next run knows it";
}

TEST_F(SelfTests, SamplesStandForMoreInputsOfAKindAndForLeftOutOnes) {
  const auto add_input = [](ir::Graph& graph) {
    return graph.add_value("", {.dtype = DType::f32, .shape = Shape{3, 5}}, ir::Role::input);
  };
  ir::Graph graph;
  std::vector<ir::ValueId> many;
  for (int i = 0; i < 5; ++i) many.push_back(add_input(graph));
  graph.add(*ops::find_op("sum_squares"), many, {});
  const ir::ValueId right = graph.add_value("", {.dtype = DType::f32, .shape = Shape{5, 2}}, ir::Role::input);
  graph.add(*ops::find_op("matmul"), {many[0], right, ir::kNone, ir::kNone}, {});
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  test.cover(graph);
  EXPECT_EQ(names(test), std::vector<std::string>());
  EXPECT_EQ(test.num_tested(), 3) << "sums by samples, the matmul by itself too";
}

TEST_F(SelfTests, ANodeThatDoesNotFitIsJudgedBySamples) {
  emu::gpus() = {{.memory_bytes = 1 << 20}};
  ir::Graph graph;
  graph.add1(*ops::find_op("relu"),
             {graph.add_value("x", {.dtype = DType::f32, .shape = {1 << 20}}, ir::Role::input)});
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  test.cover(graph);
  EXPECT_EQ(test.num_tested(), 1);
  EXPECT_THAT(names(test), IsEmpty());
}

TEST_F(SelfTests, AreRememberedForTheGpuAndItsDriver) {
  ir::Graph graph = graph_of({ops::find_op("relu"), &wrong_});
  const auto run = [&](SelfTestMode when) {
    SelfTest test(find_gpu("emulated"), {.when = when, .folder = folder_.path()});
    test.cover(graph);
    EXPECT_EQ(names(test).size(), when == SelfTestMode::never ? 0U : 1U);
    return test.num_tested();
  };
  EXPECT_EQ(run(SelfTestMode::never), 0);
  // The samples of both, and the node of the one whose samples are right.
  EXPECT_EQ(run(SelfTestMode::once), 3);
  EXPECT_EQ(run(SelfTestMode::once), 0);
  EXPECT_EQ(run(SelfTestMode::always), 3);
  emu::gpus() = {{}, {}};
  SelfTest other(find_gpu("emulated:1"), {.when = SelfTestMode::once, .folder = folder_.path()});
  other.cover(graph);
  EXPECT_EQ(other.num_tested(), 3) << "another GPU is another matter";
}

TEST_F(SelfTests, AKernelThatEndedTheProgramIsNotTriedAgain) {
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()}).cover(graph);
  for (const auto& file : fs::directory_iterator(folder_.path()))
    std::ofstream(file.path()) << "trying\trelu(f32) -> f32\t\n";
  SelfTest next(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(next.num_tested(), 0);
  EXPECT_THAT(names(next), Contains("relu(f32) -> f32"));
}

TEST_F(SelfTests, WhatAnotherProcessIsTryingIsTriedHereToo) {
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()}).cover(graph);
  for (const auto& file : fs::directory_iterator(folder_.path()))
    std::ofstream(file.path()) << "trying\trelu(f32) -> f32\t" << getpid() << "\n";
  SelfTest next(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(next.num_tested(), 2);
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
  SelfTest right(find_gpu("emulated"), {.when = SelfTestMode::always});
  EXPECT_EQ(covered(right), "library");
  EXPECT_EQ(right.num_tested(), 2);
  EXPECT_EQ(names(right), std::vector<std::string>());
  for (const auto library : {emu::GpuSettings::Library::wrong, emu::GpuSettings::Library::failing}) {
    emu::gpus() = {{.library = library}};
    SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
    EXPECT_EQ(covered(test), "");
    EXPECT_EQ(test.num_tested(), 3);
    EXPECT_EQ(names(test), std::vector<std::string>{"matmul(f32, f32) -> f32, way library"});
  }
}

TEST_F(SelfTests, TestAnAlgorithmOfTheLibraryWithNodesAlone) {
  emu::gpus() = {{.library = emu::GpuSettings::Library::right, .algorithm_threads = {1, 1}}};
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::always});
  for (const uint64_t number : {1, 2}) {
    ir::Graph graph;
    const auto value = [&] {
      return graph.add_value("", {.dtype = DType::f32, .shape = {4, 4}}, ir::Role::input);
    };
    const std::string way = ops::library_variant({{number, 1}});
    graph.add(*ops::find_op("matmul"), {value(), value()}, {{"way", way}});
    test.cover(graph);
    EXPECT_EQ(graph.nodes[0].attrs.text("way"), way);
  }
  EXPECT_EQ(test.num_tested(), 3) << "the samples once, and two nodes";
  EXPECT_EQ(names(test), std::vector<std::string>());
}

TEST_F(SelfTests, WorkWhereNothingCanBeRemembered) {
  std::ofstream(folder_.path() / "file") << "no folder";
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path() / "file"});
  ir::Graph graph = graph_of({&wrong_});
  test.cover(graph);
  EXPECT_EQ(names(test).size(), 1U);
}

TEST_F(SelfTests, AFullGpuIsNoFaultOfItsKernels) {
  emu::gpus() = {{.memory_bytes = 100}};
  ir::Graph graph = graph_of({ops::find_op("relu")});
  SelfTest test(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  EXPECT_THROW(test.cover(graph), UserError);
  EXPECT_EQ(names(test), std::vector<std::string>());
  emu::gpus() = {{}};
  SelfTest next(find_gpu("emulated"), {.when = SelfTestMode::once, .folder = folder_.path()});
  next.cover(graph);
  EXPECT_EQ(names(next), std::vector<std::string>()) << "what could not be tried is still open";
}

}  // namespace
}  // namespace hearth::exec
