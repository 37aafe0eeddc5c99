// Generated from the op list: every op that has a kernel for GPUs, with every one of its samples.
#include "gpu/gpu.h"
#include "op_sample.h"

namespace hearth::ops {
namespace {

/// Buffers of one run, each an allocation of its own: what lies around them is watched.
class GpuKernel : public OpSample {
 protected:
  void SetUp() override {
    HEARTH_NEED_GPU();
    OpSample::SetUp();
  }

  std::vector<std::vector<std::byte>> run_kernel() const {
    gpu::Gpu gpu;
    const ir::Kernel kernel = gpu.kernel(graph_, node());
    std::vector<void*> in, out;
    for (const ir::ValueId id : node().inputs)
      in.push_back(id == ir::kNone ? nullptr : gpu.put(exactly(graph_.type(id), values_.at(id))));
    for (size_t k = 0; k < node().outputs.size(); ++k) {
      const int written = k < op_->writes.size() ? op_->writes[k] : -1;
      out.push_back(written >= 0 ? in[static_cast<size_t>(written)]
                                 : gpu.room<std::byte>(num_bytes(node().outputs[k])));
    }
    auto* workspace = kernel.workspace_bytes == 0
                          ? nullptr
                          : gpu.room<std::byte>(static_cast<size_t>(kernel.workspace_bytes));
    kernel.run({.in = in, .out = out, .workspace = workspace, .stream = &gpu.stream()});
    std::vector<std::vector<std::byte>> outputs;
    for (size_t k = 0; k < out.size(); ++k)
      outputs.push_back(gpu.get(static_cast<const std::byte*>(out[k]), num_bytes(node().outputs[k])));
    return outputs;
  }

 private:
  size_t num_bytes(ir::ValueId id) const { return static_cast<size_t>(graph_.type(id).num_bytes()); }
  static std::vector<std::byte> exactly(const ir::Type& type, const std::vector<double>& values) {
    std::vector<std::byte> bytes = store(type, values);
    bytes.resize(static_cast<size_t>(type.num_bytes()));
    return bytes;
  }
};

TEST_P(GpuKernel, MatchesTheReferenceWithTheSameBitsInEveryOrder) {
  std::vector<std::vector<std::byte>> first;
  gpu::in_every_order([&] {
    const auto got = run_kernel();
    if (first.empty()) first = got;
    EXPECT_EQ(got, first);
    expect_reference(got);
  });
}

/// Of another GPU's matrix instruction (RT_TILE), only what multiplies tiles.
bool is_tested(const ir::OpDef& op) {
  if (!op.gpu) return false;
#ifdef RT_TILE
  for (const char* part : {"matmul", "quantized", "conv", "attention", "head_cross"}) {
    if (op.name.find(part) != std::string_view::npos) return true;
  }
  return false;
#else
  return true;
#endif
}
INSTANTIATE_TEST_SUITE_P(Ops, GpuKernel, testing::ValuesIn(cases_of(is_tested)), name_of);

}  // namespace
}  // namespace hearth::ops
