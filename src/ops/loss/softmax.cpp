#include <cmath>

#include "backend/cpu/clones.h"
#include "ops/loss/loss.h"
#include "ops/loss/row_blocks.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void add_products(const float* a, const float* b, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += a[i] * b[i];
}
HEARTH_CLONES void slope(const float* y, const float* dot, float* dy, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dy[i] = y[i] * (dy[i] - dot[i]);
}

Inferred infer(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() < 1 || x.shape.back() < 1 || !is_storage_float(x.dtype))
    return refuse_type("x", "floating with an axis", x);
  return {.out = {x}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (node.in_type(1) != node.in_type(0))
    return refuse_type("y", to_string(node.in_type(0)), node.in_type(1));
  return infer(node);
}

Kernel kernel(const NodeView& node) {
  const RowBlocks all(node.in_type(0));
  return all.kernel(node.num_threads, [=](const KernelArgs& args, const RowBlocks::Block& block) {
    all.read(block, args.in[0], block.columns);
    add_up_exponentials(block);
    for (int64_t r = 0; r < block.rows; ++r) block.factor[r] = 1 / block.sum[r];
    for (int64_t k = 0; k < block.width; ++k)
      cpu::simd().scaled_exp(block.columns + k * block.stride, block.row_max, block.factor, block.rows, 0);
    all.write(block, block.columns, args.out[0], [](float*) {});
  });
}

Kernel grad_kernel(const NodeView& node) {
  const RowBlocks all(node.in_type(0));
  return all.kernel(node.num_threads, [=](const KernelArgs& args, const RowBlocks::Block& block) {
    all.read(block, args.in[0], block.columns);
    all.read(block, args.in[1], block.more);
    std::fill_n(block.sum, block.rows, 0.0F);
    for (int64_t k = 0; k < block.width; ++k)
      add_products(block.columns + k * block.stride, block.more + k * block.stride, block.sum, block.rows);
    for (int64_t k = 0; k < block.width; ++k)
      slope(block.more + k * block.stride, block.sum, block.columns + k * block.stride, block.rows);
    all.write(block, block.columns, args.out[0], [](float*) {});
  });
}

/// Calls row(index of the first element, width) for each row of input 0.
template <typename Row>
void reference_rows(const ReferenceArgs& args, Row row) {
  const auto width = static_cast<size_t>(args.node.in_type(0).shape.back());
  for (size_t at = 0; at < args.in[0].size(); at += width) row(at, width);
}
void reference(const ReferenceArgs& args) {
  reference_rows(args, [&](size_t at, size_t width) {
    const double* x = args.in[0].data() + at;
    const double row_max = *std::max_element(x, x + width);
    double sum = 0;
    for (size_t k = 0; k < width; ++k) sum += args.out[0][at + k] = std::exp(x[k] - row_max);
    for (size_t k = 0; k < width; ++k) args.out[0][at + k] /= sum;
  });
}
void grad_reference(const ReferenceArgs& args) {
  const std::vector<double>&dy = args.in[0], &y = args.in[1];
  reference_rows(args, [&](size_t at, size_t width) {
    double dot = 0;
    for (size_t k = at; k < at + width; ++k) dot += dy[k] * y[k];
    for (size_t k = at; k < at + width; ++k) args.out[0][k] = y[k] * (dy[k] - dot);
  });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone};
  return {emit(context, "softmax_grad", {context.grad_out[0], context.node.outputs[0]})};
}

Cost cost(const NodeView& node) { return stream_cost(node, 8); }

std::vector<Sample> samples() {
  return {{.in = {normal({7, 10})}},
          {.in = {normal({2, 3, 1003})}},
          {.in = {normal({3, 1300})}},
          {.in = {normal({3, 1300}, DType::bf16)}},
          {.in = {normal({6, 9}, DType::bf16)}},
          {.in = {normal({2, 9, 5, 2})}},
          {.in = {normal({70, 21}, DType::f16)}}};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) sample.in.push_back(sample.in[0]);
  return result;
}

}  // namespace

const OpDef softmax{.name = "softmax",
                    .doc = "softmax over the last axis",
                    .inputs = {"x"},
                    .infer = infer,
                    .vjp = vjp,
                    .cpu = kernel,
                    .gpu = true,
                    .reference = reference,
                    .cost = cost,
                    .precision = ir::Precision::full,
                    .samples = samples};

const OpDef softmax_grad{.name = "softmax_grad",
                         .doc = "softmax_grad(dy, y): y (dy - sum(dy y))",
                         .inputs = {"dy", "y"},
                         .infer = infer_grad,
                         .no_vjp_because = kNoSecondDerivatives,
                         .cpu = grad_kernel,
                         .gpu = true,
                         .reference = grad_reference,
                         .cost = cost,
                         .precision = ir::Precision::full,
                         .samples = grad_samples};

}  // namespace hearth::ops
