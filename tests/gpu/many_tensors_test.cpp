// Ops whose kernel takes many nodes: more than one launch's table holds give the same bits as one by one.
#include "ops/many_tensors.h"

#include "gpu/gpu.h"
#include "op_sample.h"

namespace hearth::ops {
namespace {

constexpr size_t kNodes = 130;

/// Nodes of one sample with numbers of their own and the scalars of the first, on a GPU.
class Nodes {
 public:
  Nodes(const ir::OpDef& op, const ir::Sample& sample) : op_(op) {
    for (size_t n = 0; n < kNodes; ++n) {
      drawn_ = draw_sample(op, sample, n);
      const std::vector<ir::ValueId>& inputs = drawn_.node().inputs;
      for (size_t k = 0; k < inputs.size(); ++k) in_.push_back(put(inputs[k], k));
      for (size_t k = 0; k < drawn_.node().outputs.size(); ++k) {
        const auto bytes = static_cast<size_t>(drawn_.graph.type(drawn_.node().outputs[k]).num_bytes());
        out_.push_back(op.writes.empty() ? gpu_.room<std::byte>(bytes)
                                         : in_[n * inputs.size() + static_cast<size_t>(op.writes[k])]);
      }
    }
  }
  std::vector<std::vector<std::byte>> together() {
    const ir::NodeTypes types(drawn_.graph, drawn_.node());
    const ir::Kernel kernel =
        gpu_.device().info().driver->kernel(op_.name, std::vector(kNodes, types.view(drawn_.node())));
    kernel.run({.in = in_, .out = out_, .workspace = workspace_of(kernel), .stream = &gpu_.stream()});
    return results();
  }
  std::vector<std::vector<std::byte>> one_by_one() {
    const ir::Kernel kernel = gpu_.kernel(drawn_.graph, drawn_.node());
    std::byte* const workspace = workspace_of(kernel);
    const size_t num_in = in_.size() / kNodes, num_out = out_.size() / kNodes;
    for (size_t n = 0; n < kNodes; ++n) {
      kernel.run({.in = std::span(in_).subspan(n * num_in, num_in),
                  .out = std::span(out_).subspan(n * num_out, num_out),
                  .workspace = workspace,
                  .stream = &gpu_.stream()});
    }
    return results();
  }
  std::vector<std::vector<std::byte>> results() {
    std::vector<std::vector<std::byte>> made;
    for (size_t i = 0; i < out_.size(); ++i) {
      const ir::ValueId id = drawn_.node().outputs[i % drawn_.node().outputs.size()];
      made.push_back(gpu_.get(static_cast<const std::byte*>(out_[i]),
                              static_cast<size_t>(drawn_.graph.type(id).num_bytes())));
    }
    return made;
  }

 private:
  std::byte* workspace_of(const ir::Kernel& kernel) {
    return gpu_.room<std::byte>(static_cast<size_t>(std::max<int64_t>(kernel.workspace_bytes, 1)));
  }
  void* put(ir::ValueId id, size_t k) {
    if (id == ir::kNone) return nullptr;
    const bool is_shared = drawn_.graph.type(id).shape.rank() == 0 && k < in_.size();
    return is_shared ? in_[k] : gpu_.put(to_bytes(drawn_.graph.type(id), drawn_.values.at(id)));
  }

  const ir::OpDef& op_;
  gpu::Gpu gpu_;
  DrawnSample drawn_;
  std::vector<void*> in_, out_;
};

class ManyNodes : public testing::TestWithParam<Case> {};

TEST_P(ManyNodes, MoveAsOneByOne) {
  HEARTH_NEED_GPU();
  const ir::Sample sample = GetParam().op->samples()[GetParam().sample];
  Nodes together(*GetParam().op, sample), apart(*GetParam().op, sample);
  const auto before = together.results(), after = together.together();
  EXPECT_EQ(after, apart.one_by_one());
  EXPECT_NE(after.front(), before.front()) << "nothing moved";
  EXPECT_NE(after.back(), before.back()) << "the last did not move";
}

/// Small ones: large tensors are a matter of one node.
std::vector<Case> small_cases() {
  std::vector<Case> cases = cases_of([](const ir::OpDef& op) { return op.gpu_many; });
  std::erase_if(
      cases, [](const Case& c) { return c.op->samples()[c.sample].in[0].type.shape.num_elements() > 1000; });
  return cases;
}
INSTANTIATE_TEST_SUITE_P(Ops, ManyNodes, testing::ValuesIn(small_cases()), name_of);

}  // namespace
}  // namespace hearth::ops
