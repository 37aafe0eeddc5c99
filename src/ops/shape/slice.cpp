#include <cstring>

#include "ops/shape/shape.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Columns [begin, begin + count) of an array [num_rows, width].
struct Columns {
  int64_t num_rows = 0;
  int64_t width = 0;
  int64_t begin = 0;
  int64_t count = 0;
};

Shape with_last(const Shape& shape, int64_t last) {
  std::vector<int64_t> axes(shape.begin(), shape.end() - 1);
  axes.push_back(last);
  return Shape(std::span<const int64_t>(axes));
}

Columns columns_of(const NodeView& node, const Shape& whole, int64_t count) {
  return {.num_rows = whole.num_elements() / whole.back(),
          .width = whole.back(),
          .begin = node.attrs.integer("begin"),
          .count = count};
}

Inferred infer_slice(const NodeView& node) {
  const Shape& in = node.in[0].shape;
  const int64_t begin = node.attrs.integer("begin");
  const int64_t count = node.attrs.integer("count");
  if (in.rank() == 0 || begin < 0 || count < 1 || begin > in.back() - count)
    return refuse(fmt::format("cannot slice {} columns from column {} on: the input is {}", count, begin,
                              to_string(in)));
  return {.out = {{.dtype = node.in[0].dtype, .shape = with_last(in, count)}}, .error = ""};
}

Inferred infer_pad(const NodeView& node) {
  const Shape& in = node.in[0].shape;
  const int64_t begin = node.attrs.integer("begin");
  const int64_t width = node.attrs.integer("width");
  if (in.rank() == 0 || begin < 0 || width < in.back() || width > (int64_t{1} << 40) ||
      begin > width - in.back())
    return refuse(fmt::format("cannot pad {} at column {} to {} columns: it does not fit", to_string(in),
                              begin, width));
  return {.out = {{.dtype = node.in[0].dtype, .shape = with_last(in, width)}}, .error = ""};
}

Kernel slice_kernel(const NodeView& node) {
  const Columns at = columns_of(node, node.in[0].shape, node.attrs.integer("count"));
  const int64_t size = dtype_bytes(node.in[0].dtype);
  const int64_t grain = std::max<int64_t>(1, kGrain / at.count);
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(at.num_rows, grain, [&](Range rows) {
      for (int64_t i = rows.begin; i < rows.end; ++i) {
        std::memcpy(args.output<char>(0) + i * at.count * size,
                    args.input<char>(0) + (i * at.width + at.begin) * size,
                    static_cast<size_t>(at.count * size));
      }
    });
  }};
}

Kernel pad_kernel(const NodeView& node) {
  const Columns at = columns_of(node, node.out[0].shape, node.in[0].shape.back());
  const int64_t size = dtype_bytes(node.in[0].dtype);
  const int64_t grain = std::max<int64_t>(1, kGrain / at.width);
  return {.run = [=](const KernelArgs& args) {
    args.threads->parallel_for(at.num_rows, grain, [&](Range rows) {
      char* to = args.output<char>(0) + rows.begin * at.width * size;
      std::memset(to, 0, static_cast<size_t>(rows.size() * at.width * size));
      for (int64_t i = rows.begin; i < rows.end; ++i, to += at.width * size) {
        std::memcpy(to + at.begin * size, args.input<char>(0) + i * at.count * size,
                    static_cast<size_t>(at.count * size));
      }
    });
  }};
}

std::vector<ValueId> slice_vjp(const VjpContext& c) {
  const int64_t width = c.graph.type(c.node.inputs[0]).shape.back();
  const int64_t begin = c.node.attrs.integer("begin");
  return {emit(c, "pad_last", {c.grad_out[0]}, {{"begin", begin}, {"width", width}})};
}

std::vector<ValueId> pad_vjp(const VjpContext& c) {
  const int64_t count = c.graph.type(c.node.inputs[0]).shape.back();
  const int64_t begin = c.node.attrs.integer("begin");
  return {emit(c, "slice_last", {c.grad_out[0]}, {{"begin", begin}, {"count", count}})};
}

void slice_reference(const ReferenceArgs& args) {
  const Columns at = columns_of(args.node, args.node.in[0].shape, args.node.attrs.integer("count"));
  for (int64_t i = 0; i < at.num_rows * at.count; ++i) {
    const int64_t from = i / at.count * at.width + at.begin + i % at.count;
    args.out[0][static_cast<size_t>(i)] = args.in[0][static_cast<size_t>(from)];
  }
}

void pad_reference(const ReferenceArgs& args) {
  const Columns at = columns_of(args.node, args.node.out[0].shape, args.node.in[0].shape.back());
  std::ranges::fill(args.out[0], 0.0);
  for (int64_t i = 0; i < at.num_rows * at.count; ++i) {
    const int64_t to = i / at.count * at.width + at.begin + i % at.count;
    args.out[0][static_cast<size_t>(to)] = args.in[0][static_cast<size_t>(i)];
  }
}

}  // namespace

const OpDef slice_last{
    .name = "slice_last",
    .doc = "`count` columns of the last axis from `begin` on",
    .inputs = {"x"},
    .infer = infer_slice,
    .vjp = slice_vjp,
    .cpu = slice_kernel,
    .gpu = true,
    .reference = slice_reference,
    .samples = [] {
      return std::vector<Sample>{
          {.in = {normal({3, 7})}, .attrs = {{"begin", int64_t{2}}, {"count", int64_t{4}}}},
          {.in = {normal({2, 3, 5})}, .attrs = {{"begin", int64_t{0}}, {"count", int64_t{5}}}},
          {.in = {normal({9, 50}, DType::bf16)}, .attrs = {{"begin", int64_t{3}}, {"count", int64_t{40}}}},
          {.in = {indices({3, 7}, 200, DType::u8)}, .attrs = {{"begin", int64_t{2}}, {"count", int64_t{4}}}},
          {.in = {indices({3, 7}, 200, DType::i64)},
           .attrs = {{"begin", int64_t{2}}, {"count", int64_t{4}}}}};
    }};

const OpDef pad_last{
    .name = "pad_last",
    .doc = "the last axis placed at column `begin` of `width`, the others zero",
    .inputs = {"x"},
    .infer = infer_pad,
    .vjp = pad_vjp,
    .cpu = pad_kernel,
    .gpu = true,
    .reference = pad_reference,
    .samples = [] {
      return std::vector<Sample>{
          {.in = {normal({3, 4})}, .attrs = {{"begin", int64_t{2}}, {"width", int64_t{7}}}},
          {.in = {normal({2, 3, 1})}, .attrs = {{"begin", int64_t{4}}, {"width", int64_t{5}}}},
          {.in = {normal({9, 40}, DType::bf16)}, .attrs = {{"begin", int64_t{3}}, {"width", int64_t{50}}}},
          {.in = {indices({3, 4}, 200, DType::u8)}, .attrs = {{"begin", int64_t{2}}, {"width", int64_t{7}}}},
          {.in = {indices({3, 4}, 200, DType::i64)},
           .attrs = {{"begin", int64_t{2}}, {"width", int64_t{7}}}}};
    }};

}  // namespace hearth::ops
