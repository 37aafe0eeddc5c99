#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/elementwise/elementwise.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

HEARTH_CLONES void add_row(const float* in, const float* bias, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] + bias[i];
}
HEARTH_CLONES void multiply(const float* in, float factor, float* out, int64_t count) {
  for (int64_t i = 0; i < count; ++i) out[i] = in[i] * factor;
}

Inferred infer_bias_add(const NodeView& node) {
  const Shape& x = node.in[0].shape;
  if (x.rank() < 1 || node.in[1].shape != Shape{x.back()} || node.in[1].dtype != DType::f32) {
    return refuse(fmt::format("expected an f32 bias of [{}], got {}", x.rank() < 1 ? 0 : x.back(),
                              to_string(node.in[1].shape)));
  }
  return same_as_first(node);
}

Kernel bias_add_kernel(const NodeView& node) {
  const DType dtype = node.in[0].dtype;
  const int64_t width = node.in[0].shape.back();
  const int64_t rows = num_rows(node.in[0].shape);
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows, std::max<int64_t>(1, kGrain / width), [&](Range range) {
      alignas(64) float scratch[kTile];
      for (int64_t row = range.begin; row < range.end; ++row) {
        for (int64_t c = 0; c < width; c += kTile) {
          const int64_t n = std::min(kTile, width - c);
          const float* in = cpu::as_f32(dtype, args.in[0], row * width + c, n, scratch);
          add_row(in, args.input<float>(1) + c, scratch, n);
          cpu::store_f32(dtype, scratch, args.out[0], row * width + c, n);
        }
      }
    });
  }};
}

Inferred infer_scale_by(const NodeView& node) {
  if (node.in[1] != kScalar) return refuse("expected the second input to be an f32 scalar");
  return same_as_first(node);
}

Kernel scale_by_kernel(const NodeView& node) {
  const DType dtype = node.in[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  return {.run = [=](const KernelArgs& args) {
    const float factor = *args.input<float>(1);
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      alignas(64) float scratch[kTile];
      for (int64_t i = range.begin; i < range.end; i += kTile) {
        const int64_t n = std::min(kTile, range.end - i);
        multiply(cpu::as_f32(dtype, args.in[0], i, n, scratch), factor, scratch, n);
        cpu::store_f32(dtype, scratch, args.out[0], i, n);
      }
    });
  }};
}

Inferred infer_cast(const NodeView& node) {
  if (!is_floating(node.in[0].dtype)) return refuse("expected a floating input");
  return {.out = {{.dtype = dtype_attr(node.attrs, "dtype", DType::f32), .shape = node.in[0].shape}},
          .error = ""};
}

Kernel cast_kernel(const NodeView& node) {
  const DType from = node.in[0].dtype;
  const DType to = node.out[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      alignas(64) float scratch[kTile];
      for (int64_t i = range.begin; i < range.end; i += kTile) {
        const int64_t n = std::min(kTile, range.end - i);
        cpu::store_f32(to, cpu::as_f32(from, args.in[0], i, n, scratch), args.out[0], i, n);
      }
    });
  }};
}

std::vector<ValueId> cast_vjp(const VjpContext& c) {
  return {as_dtype(c, c.grad_out[0], c.graph.type(c.node.inputs[0]).dtype)};
}

Inferred infer_broadcast(const NodeView& node) {
  if (node.in[0] != kScalar) return refuse("expected an f32 scalar");
  return {.out = {{.dtype = DType::f32, .shape = Shape(node.attrs.list("shape"))}}, .error = ""};
}

Kernel broadcast_kernel(const NodeView& node) {
  const int64_t count = node.out[0].shape.num_elements();
  return {.run = [=](const KernelArgs& args) {
    const float value = *args.input<float>(0);
    args.threads->parallel_for(count, kGrain, [&](Range range) {
      std::fill(args.output<float>(0) + range.begin, args.output<float>(0) + range.end, value);
    });
  }};
}

}  // namespace

const OpDef bias_add{.name = "bias_add",
                     .doc = "x + bias over the last axis",
                     .inputs = {"x", "bias"},
                     .infer = infer_bias_add,
                     .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                       return {c.grad_out[0], emit(c, "sum_leading", {c.grad_out[0]})};
                     },
                     .cpu = bias_add_kernel,
                     .gpu = true,
                     .reference =
                         [](const ReferenceArgs& args) {
                           const size_t width = args.in[1].size();
                           for (size_t i = 0; i < args.in[0].size(); ++i) {
                             args.out[0][i] = args.in[0][i] + args.in[1][i % width];
                           }
                         },
                     .cost = [](const NodeView& node) { return cost_per_element(node, 1); },
                     .may_work_in_place = true,
                     .samples =
                         [] {
                           return std::vector<Sample>{{.in = {normal({5, 7}), normal({7})}},
                                                      {.in = {normal({2, 3, 3, 1500}), normal({1500})}},
                                                      {.in = {normal({9, 16}, DType::bf16), normal({16})}},
                                                      {.in = {normal({9, 15}, DType::bf16), normal({15})}}};
                         }};

const OpDef scale_by{
    .name = "scale_by",
    .doc = "x times an f32 scalar value",
    .inputs = {"x", "factor"},
    .infer = infer_scale_by,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      const ValueId product = emit(c, "mul", {c.grad_out[0], c.node.inputs[0]});
      return {emit(c, "scale_by", {c.grad_out[0], c.node.inputs[1]}), emit(c, "sum_all", {product})};
    },
    .cpu = scale_by_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          for (size_t i = 0; i < args.in[0].size(); ++i) args.out[0][i] = args.in[0][i] * args.in[1][0];
        },
    .cost = [](const NodeView& node) { return cost_per_element(node, 1); },
    .may_work_in_place = true,
    .samples =
        [] {
          return std::vector<Sample>{{.in = {normal({5, 701}), normal({})}},
                                     {.in = {normal({33}, DType::f16), normal({})}}};
        }};

const OpDef cast{.name = "cast",
                 .doc = "conversion to another floating dtype, rounded to nearest even",
                 .inputs = {"x"},
                 .infer = infer_cast,
                 .vjp = cast_vjp,
                 .cpu = cast_kernel,
                 .gpu = true,
                 .gpu_many = true,
                 .reference = [](const ReferenceArgs& args) { args.out[0] = args.in[0]; },
                 .samples =
                     [] {
                       const Attrs to_bf16 = {{"dtype", std::string("bf16")}};
                       const Attrs to_f16 = {{"dtype", std::string("f16")}};
                       const Attrs to_f32 = {{"dtype", std::string("f32")}};
                       return std::vector<Sample>{
                           {.in = {normal({3000})}, .attrs = to_bf16, .tolerance = 4e-3},
                           {.in = {normal({3000})}, .attrs = to_f16, .tolerance = 5e-4},
                           {.in = {normal({3, 5}, DType::bf16)}, .attrs = to_f32},
                           {.in = {normal({3, 5}, DType::f16)}, .attrs = to_f32}};
                     }};

const OpDef broadcast_scalar{
    .name = "broadcast_scalar",
    .doc = "a tensor of the given shape filled with a scalar value",
    .inputs = {"value"},
    .infer = infer_broadcast,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> { return {emit(c, "sum_all", {c.grad_out[0]})}; },
    .cpu = broadcast_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) { std::fill(args.out[0].begin(), args.out[0].end(), args.in[0][0]); },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {normal({})}, .attrs = {{"shape", std::vector<int64_t>{3, 5}}}},
                                     {.in = {normal({})}, .attrs = {{"shape", std::vector<int64_t>{20000}}}}};
        }};

}  // namespace hearth::ops
