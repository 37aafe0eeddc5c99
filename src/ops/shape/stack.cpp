#include <numeric>

#include "backend/cpu/convert.h"
#include "ops/shape/shape.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer_stack(const NodeView& node) {
  const Type& first = node.in_type(0);
  if (first.shape.rank() != 2 || !is_storage_float(first.dtype))
    return refuse_type("the first matrix", "floating [M, N]", first);
  int64_t rows = 0;
  for (const Type& type : node.in) {
    if (type.dtype != first.dtype || type.shape.rank() != 2 || type.shape[1] != first.shape[1])
      return refuse_type("a matrix", fmt::format("{}[M, {}]", dtype_name(first.dtype), first.shape[1]), type);
    rows += type.shape[0];
  }
  return {.out = {{.dtype = dtype_attr(node.attrs, "dtype", first.dtype), .shape = {rows, first.shape[1]}}},
          .error = ""};
}

Inferred infer_unstack(const NodeView& node) {
  const Type& x = node.in_type(0);
  const std::vector<int64_t>& rows = node.attrs.list("rows");
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || rows.empty() ||
      std::accumulate(rows.begin(), rows.end(), int64_t{0}) != x.shape[0])
    return refuse_type("x", "floating [sum of rows, N]", x);
  std::vector<Type> out;
  for (const int64_t count : rows) {
    if (count < 1) return refuse(fmt::format("a matrix of {} rows", count));
    out.push_back({.dtype = dtype_attr(node.attrs, "dtype", x.dtype), .shape = {count, x.shape[1]}});
  }
  return {.out = out, .error = ""};
}

/// Converts `count` elements from element `from_begin` of an array to element `to_begin` of another one.
void convert(const Type& from, const void* in, int64_t from_begin, const Type& to, void* out,
             int64_t to_begin, int64_t count, ThreadPool& threads) {
  threads.parallel_for(count, kGrain, [&](Range range) {
    alignas(64) float scratch[kTile];
    for (int64_t i = range.begin; i < range.end; i += kTile) {
      const int64_t n = std::min(kTile, range.end - i);
      cpu::store_f32(to.dtype, cpu::as_f32(from.dtype, in, from_begin + i, n, scratch), out, to_begin + i, n);
    }
  });
}

Kernel stack_kernel(const NodeView& node) {
  const std::vector<Type> in(node.in.begin(), node.in.end());
  return {.run = [in, out = node.out_type(0)](const KernelArgs& args) {
    int64_t begin = 0;
    for (size_t i = 0; i < in.size(); ++i) {
      const int64_t count = in[i].shape.num_elements();
      convert(in[i], args.in[i], 0, out, args.out[0], begin, count, *args.threads);
      begin += count;
    }
  }};
}

Kernel unstack_kernel(const NodeView& node) {
  const std::vector<Type> out(node.out.begin(), node.out.end());
  return {.run = [out, in = node.in_type(0)](const KernelArgs& args) {
    int64_t begin = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t count = out[i].shape.num_elements();
      convert(in, args.in[0], begin, out[i], args.out[i], 0, count, *args.threads);
      begin += count;
    }
  }};
}

std::vector<ValueId> stack_vjp(const VjpContext& c) {
  std::vector<int64_t> rows;
  for (const ValueId input : c.node.inputs) rows.push_back(c.graph.type(input).shape[0]);
  const DType dtype = c.graph.type(c.node.inputs[0]).dtype;
  return c.graph.add(c.op("unstack_rows"), {c.grad_out[0]},
                     {{"rows", rows}, {"dtype", std::string(dtype_name(dtype))}}, c.node.name);
}

void stack_reference(const ReferenceArgs& args) {
  auto to = args.out[0].begin();
  for (const std::vector<double>& in : args.in) to = std::ranges::copy(in, to).out;
}
void unstack_reference(const ReferenceArgs& args) {
  auto from = args.in[0].begin();
  for (std::vector<double>& out : args.out) {
    std::copy_n(from, out.size(), out.begin());
    from += std::ssize(out);
  }
}

std::vector<Sample> stack_samples() {
  const Attrs to_bf16 = {{"dtype", std::string("bf16")}};
  return {
      {.in = {normal({2, 5}), normal({3, 5})}},
      {.in = {normal({8, 600}), normal({16, 600}), normal({8, 600})}, .attrs = to_bf16, .tolerance = 4e-3},
      {.in = {normal({9, 33}, DType::bf16), normal({1, 33}, DType::bf16)}}};
}
std::vector<Sample> unstack_samples() {
  const auto rows = [](std::vector<int64_t> counts) { return Attrs{{"rows", std::move(counts)}}; };
  Attrs to_f32 = rows({1, 9});
  to_f32.set("dtype", std::string("f32"));
  return {{.in = {normal({5, 7})}, .attrs = rows({2, 3})},
          {.in = {normal({32, 600})}, .attrs = rows({8, 16, 8})},
          {.in = {normal({10, 33}, DType::bf16)}, .attrs = to_f32}};
}

}  // namespace

const OpDef stack_rows{.name = "stack_rows",
                       .doc = "stack_rows(all a [M, N]): the rows of all matrices, converted to `dtype`",
                       .inputs = {"a+"},
                       .infer = infer_stack,
                       .vjp = stack_vjp,
                       .cpu = stack_kernel,
                       .gpu = true,
                       .gpu_many = true,
                       .reference = stack_reference,
                       .samples = stack_samples};

const OpDef unstack_rows{
    .name = "unstack_rows",
    .doc = "unstack_rows(x [M, N]): matrices of the next rows[i] rows, converted to `dtype`",
    .inputs = {"x"},
    .infer = infer_unstack,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = unstack_kernel,
    .gpu = true,
    .gpu_many = true,
    .reference = unstack_reference,
    .samples = unstack_samples};

}  // namespace hearth::ops
