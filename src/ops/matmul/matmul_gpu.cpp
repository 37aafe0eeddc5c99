#include "backend/gpu/blas.h"
#include "ops/gpu_support.h"
#include "ops/matmul/matmul.h"
#include "ops/matmul/matmul_kernel.h"

namespace hearth::ops {
namespace {

/// Returns the variant with that name; the default variant if the name is unknown.
MatmulVariant variant_named(std::string_view name, const MatmulShape& shape, DType in) {
  for (const MatmulVariant way : variants_of(in)) {
    if (name_of(way) == name) return way;
  }
  return MatmulKernel::default_variant(shape, in);
}

bool library_takes(const ir::NodeView& node) {
  return !node.has_input(MatmulIn::bias) && node.attrs.text_or("activation", "none") == "none" &&
         gpu::blas_takes(node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype);
}

/// Returns the names of the variants that a node can use, for autotuning: the default first, the BLAS library
/// last. The library supports neither bias nor activation.
std::vector<std::string_view> matmul_variants(const ir::NodeView& node, bool has_library) {
  const DType in = node.in_type(MatmulIn::a).dtype;
  const MatmulVariant usual = MatmulKernel::default_variant(matmul_shape_of(node), in);
  std::vector<std::string_view> names = {name_of(usual)};
  for (const MatmulVariant way : variants_of(in)) {
    if (way != usual) names.push_back(name_of(way));
  }
  if (has_library && library_takes(node)) names.push_back(kLibraryVariant);
  return names;
}

std::vector<ir::StandaloneNode> itself(const ir::NodeView& node) {
  return {{.attrs = node.attrs,
           .in = {node.in.begin(), node.in.end()},
           .out = {node.out.begin(), node.out.end()}}};
}

ir::Kernel matmul_accumulate_gpu(const ir::NodeView& node) {
  return matmul_gpu(accumulated_matmul(node, true).view(), {1, 2, 0});
}
std::vector<ir::StandaloneNode> matmul_of_accumulate(const ir::NodeView& node) {
  return {accumulated_matmul(node, true)};
}

const GpuKernels kKernels = {
    {.op = "matmul", .one = matmul_gpu, .matmuls = itself, .ways = matmul_variants},
    {.op = "matmul_accumulate", .one = matmul_accumulate_gpu, .matmuls = matmul_of_accumulate}};

}  // namespace

ChosenMatmul::ChosenMatmul(const MatmulShape& shape, DType in, DType out, std::string_view way)
    : own_(shape, in, out, variant_named(way, shape, in)) {
  if (!is_library_variant(way) || shape.relu || !gpu::blas_takes(in, out)) return;
  library_ = blas_matmul_of(shape, in, out);
  library_->algorithm = algorithm_in(way);
}

int64_t ChosenMatmul::workspace_bytes() const {
  return library_ ? gpu::blas_workspace_bytes() : own_.workspace_bytes();
}

void ChosenMatmul::launch(gpu::Stream& stream, const MatmulArrays& arrays) const {
  if (!library_) return own_.launch(stream.handle(), arrays);
  stream.multiply(
      *library_,
      {.a = arrays.b, .b = arrays.a, .c = arrays.residual, .d = arrays.c, .workspace = arrays.workspace});
}

ir::Kernel matmul_gpu(const ir::NodeView& node) {
  const std::string_view way = variant_at(node.attrs, 0);
  const bool bias = node.has_input(MatmulIn::bias), residual = node.has_input(MatmulIn::residual);
  const ChosenMatmul matmul(matmul_shape_of(node), node.in_type(MatmulIn::a).dtype, node.out_type(0).dtype,
                            is_library_variant(way) && !library_takes(node) ? "" : way);
  const auto run = [=](const ir::KernelArgs& args) {
    matmul.launch(*args.stream, {.a = args.in[MatmulIn::a],
                                 .b = args.in[MatmulIn::b],
                                 .bias = bias ? input_of<float>(args, MatmulIn::bias) : nullptr,
                                 .residual = residual ? args.in[MatmulIn::residual] : nullptr,
                                 .c = args.out[0],
                                 .workspace = args.workspace});
  };
  return {.run = run, .workspace_bytes = matmul.workspace_bytes()};
}

ir::Kernel matmul_gpu(const ir::NodeView& matmul, std::array<size_t, 3> inputs) {
  ir::Kernel kernel = matmul_gpu(matmul);
  kernel.run = [run = kernel.run, inputs](const ir::KernelArgs& args) {
    void* const in[] = {args.in[inputs[0]], args.in[inputs[1]], nullptr, args.in[inputs[2]]};
    ir::KernelArgs of_matmul = args;
    of_matmul.in = in;
    run(of_matmul);
  };
  return kernel;
}

}  // namespace hearth::ops
