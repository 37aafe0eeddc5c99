#include <cstring>
#include <limits>

#include "ops/shape/shape.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

Inferred infer(const NodeView& node) {
  const Type& first = node.in_type(0);
  if (first.shape.rank() == 0) return refuse_type("the first array", "of rank 1 or more", first);
  std::vector<int64_t> axes = axes_of(first.shape);
  for (size_t i = 1; i < node.in.size(); ++i) {
    const Type& type = node.in_type(i);
    std::vector<int64_t> wanted = axes_of(first.shape);
    if (type.dtype != first.dtype || type.shape.rank() != first.shape.rank())
      return refuse_type(fmt::format("array {}", i),
                         fmt::format("{} except for its last axis", to_string(first)), type);
    wanted.back() = type.shape.back();
    if (axes_of(type.shape) != wanted)
      return refuse_type(fmt::format("array {}", i),
                         fmt::format("{} except for its last axis", to_string(first)), type);
    axes.back() += type.shape.back();
  }
  return {.out = {{.dtype = first.dtype, .shape = Shape(std::span<const int64_t>(axes))}}, .error = ""};
}

/// Returns the output column at which each input begins, followed by the total number of columns.
std::vector<int64_t> begins_of(std::span<const Type> types) {
  std::vector<int64_t> begins = {0};
  for (const Type& type : types) begins.push_back(begins.back() + type.shape.back());
  return begins;
}

Kernel kernel(const NodeView& node) {
  const int64_t size = dtype_bytes(node.in_type(0).dtype), rows = num_rows(node.out_type(0).shape);
  std::vector<int64_t> begins = begins_of(node.in);
  for (int64_t& begin : begins) begin *= size;
  const int64_t grain = std::max<int64_t>(1, kGrain * size / std::max<int64_t>(1, begins.back()));
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows, grain, [&](Range range) {
      for (size_t i = 0; i < args.in.size(); ++i) {
        const int64_t count = begins[i + 1] - begins[i];
        const char* from = args.input<char>(i) + range.begin * count;
        char* to = args.output<char>(0) + range.begin * begins.back() + begins[i];
        for (int64_t row = range.begin; row < range.end; ++row, from += count, to += begins.back())
          std::memcpy(to, from, static_cast<size_t>(count));
      }
    });
  }};
}

std::vector<ValueId> vjp(const VjpContext& c) {
  const std::vector<ValueId> inputs = c.node.inputs;
  std::vector<ValueId> grads;
  int64_t begin = 0;
  for (const ValueId input : inputs) {
    const int64_t count = c.graph.type(input).shape.back();
    grads.push_back(emit(c, "slice_last", {c.grad_out[0]}, {{"begin", begin}, {"count", count}}));
    begin += count;
  }
  return grads;
}

void reference(const ReferenceArgs& args) {
  const std::vector<int64_t> begins = begins_of(args.node.in);
  for (size_t k = 0; k < args.in.size(); ++k) {
    const int64_t count = begins[k + 1] - begins[k];
    for (int64_t i = 0; i < std::ssize(args.in[k]); ++i) {
      const int64_t to = i / count * begins.back() + begins[k] + i % count;
      args.out[0][static_cast<size_t>(to)] = args.in[k][static_cast<size_t>(i)];
    }
  }
}

std::vector<Sample> samples() {
  return {{.in = {normal({3, 7}), normal({3, 4})}},
          {.in = {normal({2, 3, 5})}},
          {.in = {normal({2, 3, 1}), normal({2, 3, 2}), normal({2, 3, 300})}},
          {.in = {normal({9, 2}), normal({9, 6})}},
          {.in = {normal({2, 5, 3, 12}), normal({2, 5, 3, 8}), normal({2, 5, 3, 12})}},
          {.in = {normal({9, 40}, DType::bf16), normal({9, 3}, DType::bf16)}},
          {.in = {normal({70, 40}, DType::f16), normal({70, 16}, DType::f16)}},
          {.in = {indices({3, 7}, 200, DType::u8), indices({3, 2}, 200, DType::u8)}},
          {.in = {indices({3, 7}, 200, DType::i64), indices({3, 1}, 200, DType::i64)}}};
}

}  // namespace

const OpDef concat_last{
    .name = "concat_last",
    .doc = "concatenation along the last axis, of arrays of one dtype and equal leading axes",
    .inputs = {"a+"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .num_following = std::numeric_limits<size_t>::max(),
    .samples = samples};

}  // namespace hearth::ops
