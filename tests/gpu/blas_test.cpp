// Matmuls that are left to the vendor's library: however their sides lie, with and without something added.
#include "backend/gpu/blas.h"

#include <gmock/gmock.h>

#include <set>

#include "gpu/gpu.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"
#include "ops/op_list.h"
#include "ops/sample.h"

namespace hearth::gpu {
namespace {

struct Sizes {
  int64_t m, n, k;
};

/// A matmul's node, which asks the library.
ir::Sample sample_of(const Sizes& sizes, bool transpose_a, bool transpose_b, bool residual, DType in,
                     DType out) {
  const auto [m, n, k] = sizes;
  ir::Sample made{.in = {{.type = {.dtype = in, .shape = transpose_a ? Shape{k, m} : Shape{m, k}}},
                         {.type = {.dtype = in, .shape = transpose_b ? Shape{n, k} : Shape{k, n}}}},
                  .attrs = {{"transpose_a", int64_t{transpose_a}},
                            {"transpose_b", int64_t{transpose_b}},
                            {"out_dtype", std::string(dtype_name(out))},
                            {"way", std::string("library")}}};
  if (!residual) return made;
  made.in.push_back({.type = {.dtype = DType::boolean, .shape = {}}, .fill = ir::SampleInput::Fill::absent});
  made.in.push_back({.type = {.dtype = out, .shape = {m, n}}});
  return made;
}

/// No better aligned than a planned one.
std::byte* workspace(Gpu& gpu, int64_t num_bytes) {
  constexpr size_t kAlignment = 64;
  return gpu.room<std::byte>(static_cast<size_t>(num_bytes) + kAlignment) + kAlignment;
}

/// What the kernel of a sample makes of it.
std::vector<std::vector<std::byte>> results(Gpu& gpu, const ops::DrawnSample& drawn) {
  const ir::NodeTypes types(drawn.graph, drawn.node());
  const ir::Kernel kernel = gpu.kernel(drawn.graph, drawn.node());
  EXPECT_GE(kernel.workspace_bytes, gpu.runtime().library_workspace_bytes);
  std::vector<void*> in, out;
  for (const ir::ValueId id : drawn.node().inputs) {
    in.push_back(id == ir::kNone ? nullptr
                                 : gpu.put(ops::to_bytes(drawn.graph.type(id), drawn.values.at(id))));
  }
  for (const ir::Type& type : types.out)
    out.push_back(gpu.room<std::byte>(static_cast<size_t>(type.num_bytes())));
  kernel.run(
      {.in = in, .out = out, .workspace = workspace(gpu, kernel.workspace_bytes), .stream = &gpu.stream()});
  std::vector<std::vector<std::byte>> made;
  for (size_t i = 0; i < out.size(); ++i)
    made.push_back(
        gpu.get(static_cast<const std::byte*>(out[i]), static_cast<size_t>(types.out[i].num_bytes())));
  return made;
}

using Library = LibraryTest;

TEST_F(Library, MultipliesHoweverTheSidesLie) {
  constexpr Sizes kSizes[] = {{5, 7, 3}, {1, 9, 4}, {6, 1, 5}, {4, 3, 1}, {1, 1, 8}, {33, 20, 64}};
  constexpr std::pair<DType, DType> kTypes[] = {{DType::f32, DType::f32},
                                                {DType::bf16, DType::bf16},
                                                {DType::bf16, DType::f32},
                                                {DType::f16, DType::f16},
                                                {DType::f16, DType::f32}};
  const ir::OpDef& matmul = *ops::find_op("matmul");
  for (const Sizes& sizes : kSizes) {
    for (const auto& [in, out] : kTypes) {
      for (int lies = 0; lies < 8; ++lies) {
        SCOPED_TRACE(testing::Message() << sizes.m << " x " << sizes.n << " x " << sizes.k << ' '
                                        << dtype_name(in) << " to " << dtype_name(out) << ", " << lies);
        const bool transpose_a = (lies & 1) != 0, transpose_b = (lies & 2) != 0, residual = (lies & 4) != 0;
        const ops::DrawnSample drawn =
            ops::draw_sample(matmul, sample_of(sizes, transpose_a, transpose_b, residual, in, out), 0);
        Gpu gpu;
        ASSERT_EQ(ops::compare_with_reference(drawn, results(gpu, drawn)), "");
      }
    }
  }
}

TEST_F(Library, UsesTheAlgorithmOfTheVariant) {
  Gpu gpu;
  ir::Sample sample = sample_of({33, 20, 64}, false, true, false, DType::bf16, DType::f32);
  const ir::OpDef& matmul = *ops::find_op("matmul");
  const auto results_of = [&](const std::string& way) {
    sample.attrs.set("way", way);
    const ops::DrawnSample drawn = ops::draw_sample(matmul, sample, 0);
    const auto found = results(gpu, drawn);
    EXPECT_EQ(ops::compare_with_reference(drawn, found), "") << way;
    return found;
  };
  const ops::DrawnSample drawn = ops::draw_sample(matmul, sample, 0);
  const ir::NodeTypes types(drawn.graph, drawn.node());
  const ops::MatmulShape shape = ops::matmul_shape_of(types.view(drawn.node()));
  std::set<std::vector<std::vector<std::byte>>> found;
  for (const BlasAlgorithm& algorithm :
       gpu.stream().algorithms(ops::blas_matmul_of(shape, DType::bf16, DType::f32))) {
    const std::string way = ops::library_variant(algorithm);
    const auto once = results_of(way);
    EXPECT_EQ(results_of(way), once);
    found.insert(once);
  }
#if defined(HEARTH_GPU_EMULATED)
  EXPECT_EQ(found.size(), 2U) << "each adds terms in a different order";
#endif
  EXPECT_EQ(results_of(ops::library_variant({{1, 2, 3, 4, 5, 6, 7, 8}})), results_of("library"))
      << "an algorithm that is not valid is replaced by the first choice";
}

TEST_F(Library, MultipliesInsideOtherOps) {
  std::set<std::string_view> found;
  for (const ir::OpDef* op : ops::op_list()) {
    Gpu gpu;
    const ir::GpuKernel* const kernels = gpu.device().info().driver->find_kernel(op->name);
    if (kernels == nullptr || kernels->matmuls == nullptr || op->name == "matmul") continue;
    for (ir::Sample sample : op->samples()) {
      sample.attrs.set("way", std::string("library,library,library"));
      const ops::DrawnSample drawn = ops::draw_sample(*op, sample, 0);
      // It is not aligned, or small.
      if (gpu.kernel(drawn.graph, drawn.node()).workspace_bytes < gpu.runtime().library_workspace_bytes)
        continue;
      SCOPED_TRACE(testing::Message() << op->name << ' ' << to_string(sample.in[0].type.shape));
      ASSERT_EQ(ops::compare_with_reference(drawn, results(gpu, drawn)), "");
      found.insert(op->name);
    }
  }
  EXPECT_THAT(found, testing::UnorderedElementsAre("conv2d", "conv2d_moments", "conv2d_grad_input",
                                                   "conv2d_grad_weight", "head_cross_entropy",
                                                   "head_cross_entropy_grad", "head_cross_entropy_train",
                                                   "head_top_k", "matmul_accumulate", "quantized_linear"));
}

TEST_F(Library, AddsToWhatIsThereInARecordingToo) {
  constexpr BlasMatmul kMatmul{
      .m = 2, .n = 2, .k = 3, .leading_a = 2, .leading_b = 3, .leading_c = 2, .in = DType::f32};
  Gpu gpu;
  float* sums = gpu.put<float>({100, 200, 300, 400});
  const BlasArrays arrays{.a = gpu.put<float>({1, 2, 3, 4, 5, 6}),
                          .b = gpu.put<float>({1, 0, -1, 2, 1, 0}),
                          .c = sums,
                          .d = sums,
                          .workspace = workspace(gpu, gpu.runtime().library_workspace_bytes)};
  gpu.stream().multiply(kMatmul, arrays);
  EXPECT_EQ(gpu.get(sums, 4), (std::vector<float>{96, 196, 305, 408}));
  gpu.stream().start_recording();
  gpu.stream().multiply(kMatmul, arrays);
  const auto recording = gpu.stream().finish_recording();
  ASSERT_NE(recording, nullptr);
  for (int i = 0; i < 2; ++i) gpu.stream().replay(*recording);
  EXPECT_EQ(gpu.get(sums, 4), (std::vector<float>{88, 188, 315, 424}));
}

}  // namespace
}  // namespace hearth::gpu
