// Generated from the op list: every op that has a kernel for GPUs, with every one of its samples.
#include <fmt/ranges.h>

#include "gpu/gpu.h"
#include "op_sample.h"
#include "ops/matmul/matmul_kernel.h"

namespace hearth::ops {
namespace {

/// Buffers of one run, each an allocation of its own: what lies around them is watched.
class GpuKernel : public OpSample {
 protected:
  void SetUp() override {
    HEARTH_NEED_GPU();
    OpSample::SetUp();
  }

  std::vector<std::vector<std::byte>> run_kernel() const { return run_kernel(node().attrs); }
  std::vector<std::vector<std::byte>> run_kernel(const ir::Attrs& attrs) const {
    gpu::Gpu gpu;
    const ir::NodeTypes types(graph_, node());
    ir::NodeView view = types.view(node());
    const ir::Kernel kernel = gpu.kernel(*op_, {.attrs = attrs, .in = view.in, .out = view.out});
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

TEST_P(GpuKernel, SmallerMatchesTheReferenceInLessWorkspace) {
  if (op_->smaller == nullptr) return;
  const ir::NodeTypes types(graph_, node());
  ir::NodeView view = types.view(node());
  const auto attrs = op_->smaller(view);
  if (!attrs) return;
  const ir::NodeView smaller{.attrs = *attrs, .in = view.in, .out = view.out};
  gpu::Gpu gpu;
  const int64_t gpu_bytes = gpu.kernel(*op_, view).workspace_bytes,
                cpu_bytes = op_->cpu(view).workspace_bytes;
  const int64_t smaller_gpu_bytes = gpu.kernel(*op_, smaller).workspace_bytes;
  EXPECT_LE(smaller_gpu_bytes, gpu_bytes);
  EXPECT_TRUE(smaller_gpu_bytes < gpu_bytes || op_->cpu(smaller).workspace_bytes < cpu_bytes);
  expect_reference(run_kernel(*attrs));
}

/// Blocks of every form for the matmuls inside, which autotuning may choose.
TEST_P(GpuKernel, MatchesTheReferenceInEveryWay) {
  const ir::NodeTypes types(graph_, node());
  const auto matmuls = gpu::Gpu().find_kernel(*op_)->matmuls;
  const size_t count = matmuls == nullptr ? 0 : matmuls(types.view(node())).size();
  if (count == 0 || graph_.type(node().inputs[0]).dtype == DType::f32) return;
  for (const MatmulVariant way : variants_of(graph_.type(node().inputs[0]).dtype)) {
    SCOPED_TRACE(name_of(way));
    ir::Attrs attrs = node().attrs;
    attrs.set("way", fmt::format("{}", fmt::join(std::vector(count, name_of(way)), ",")));
    expect_reference(run_kernel(attrs));
  }
}

/// Of another GPU's matrix instruction (RT_TILE), only what multiplies tiles.
bool is_tested(const ir::OpDef& op) {
  if (!op.gpu) return false;
#ifdef RT_TILE
  for (const char* part : {"matmul", "quantized", "low_rank", "conv", "attention", "head_cross"}) {
    if (op.name.find(part) != std::string_view::npos) return true;
  }
  return false;
#else
  return true;
#endif
}
/// Where the ops have one in bf16, samples in f16 too, which take the same paths.
std::vector<Case> cases() {
  std::vector<Case> all = cases_of(is_tested);
#ifndef RT_TILE
  for (size_t i = 0, count = all.size(); i < count; ++i) {
    const Case one = all[i];
    if (in_f16(*one.op, one.op->samples()[one.sample])) all.push_back({one.op, one.sample, true});
  }
#endif
  return all;
}
INSTANTIATE_TEST_SUITE_P(Ops, GpuKernel, testing::ValuesIn(cases()),
                         [](const auto& info) { return name_of(info); });

}  // namespace
}  // namespace hearth::ops
