#include <cstring>
#include <limits>

#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/lm/lm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

bool is_list_of_ids(const Type& type) { return type.dtype == DType::i32 && type.shape.rank() == 1; }

Inferred infer(const NodeView& node) {
  const Type& ids = node.in_type(0);
  const Type& table = node.in_type(1);
  if (!is_list_of_ids(ids)) return refuse_type("ids", "i32[N]", ids);
  if (table.shape.rank() != 2 || !is_storage_float(table.dtype))
    return refuse_type("the table", "floating [V, D]", table);
  return {.out = {{.dtype = table.dtype, .shape = {ids.shape[0], table.shape[1]}}}, .error = ""};
}

Inferred infer_grad(const NodeView& node) {
  const Type& ids = node.in_type(0);
  const Type& dy = node.in_type(1);
  if (!is_list_of_ids(ids)) return refuse_type("ids", "i32[N]", ids);
  if (dy.shape.rank() != 2 || !is_storage_float(dy.dtype) || dy.shape[0] != ids.shape[0])
    return refuse_type("dy", fmt::format("floating [{}, D]", ids.shape[0]), dy);
  return {.out = {f32_type({node.attrs.integer("rows"), dy.shape[1]})}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const int64_t count = node.in_type(0).shape[0], rows = node.in_type(1).shape[0];
  const int64_t width = node.in_type(1).shape[1];
  const DType dtype = node.in_type(1).dtype;
  const int64_t row_bytes = width * dtype_bytes(dtype);
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(
        count, std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width)), [&](Range range) {
          const float nan = std::numeric_limits<float>::quiet_NaN();
          for (int64_t i = range.begin; i < range.end; ++i) {
            const int64_t id = args.input<int32_t>(0)[i];
            if (id >= 0 && id < rows) {
              std::memcpy(args.output<std::byte>(0) + i * row_bytes,
                          args.input<std::byte>(1) + id * row_bytes, static_cast<size_t>(row_bytes));
            } else {
              for (int64_t c = 0; c < width; ++c) cpu::store_f32(dtype, &nan, args.out[0], i * width + c, 1);
            }
          }
        });
  };
  return {.run = run};
}

/// Number of columns per task of the gradient. A task sums its columns over all tokens, so that the order of
/// sums does not depend on the number of threads.
constexpr int64_t kStrip = 16;

Kernel grad_kernel(const NodeView& node) {
  const int64_t count = node.in_type(0).shape[0];
  const int64_t rows = node.out_type(0).shape[0], width = node.out_type(0).shape[1];
  const DType dtype = node.in_type(1).dtype;
  const int64_t strips = (width + kStrip - 1) / kStrip;
  const bool residual = node.has_input(2);
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(strips, 1, [&](Range range) {
      const int64_t first = range.begin * kStrip;
      const int64_t columns = std::min(range.end * kStrip, width) - first;
      float* sums = args.output<float>(0) + first;
      for (int64_t row = 0; row < rows; ++row) {
        if (residual) {
          std::copy_n(args.input<float>(2) + first + row * width, columns, sums + row * width);
        } else {
          std::fill_n(sums + row * width, columns, 0.0F);
        }
      }
      float scratch[kTile];
      for (int64_t i = 0; i < count; ++i) {
        const int64_t id = args.input<int32_t>(0)[i];
        if (id < 0 || id >= rows) continue;
        for (int64_t c = 0; c < columns; c += kTile) {
          const int64_t n = std::min(kTile, columns - c);
          cpu::add_row(cpu::as_f32(dtype, args.in[1], i * width + first + c, n, scratch),
                       sums + id * width + c, n);
        }
      }
    });
  };
  return {.run = run};
}

/// Calls body(element index in the output, element index in the table) for every column of each token whose
/// id is a row of the table.
template <typename Body>
void for_known(const std::vector<double>& ids, double rows, size_t width, Body body) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!(ids[i] >= 0 && ids[i] < rows)) continue;
    for (size_t c = 0; c < width; ++c) body(i * width + c, static_cast<size_t>(ids[i]) * width + c);
  }
}

void reference(const ReferenceArgs& args) {
  const Shape& table = args.node.in_type(1).shape;
  std::fill(args.out[0].begin(), args.out[0].end(), std::numeric_limits<double>::quiet_NaN());
  for_known(args.in[0], static_cast<double>(table[0]), static_cast<size_t>(table[1]),
            [&](size_t token, size_t entry) { args.out[0][token] = args.in[1][entry]; });
}

void grad_reference(const ReferenceArgs& args) {
  const Shape& table = args.node.out_type(0).shape;
  if (args.node.has_input(2)) {
    args.out[0] = args.in[2];
  } else {
    std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
  }
  for_known(args.in[0], static_cast<double>(table[0]), static_cast<size_t>(table[1]),
            [&](size_t token, size_t entry) { args.out[0][entry] += args.in[1][token]; });
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone};
  const int64_t rows = context.graph.type(context.node.inputs[1]).shape[0];
  return {kNone,
          emit(context, "embedding_grad", {context.node.inputs[0], context.grad_out[0]}, {{"rows", rows}})};
}

std::vector<Sample> samples() {
  return {{.in = {labels(7, 5), normal({5, 3})}},
          {.in = {labels(40, 11), normal({11, 37})}},
          {.in = {labels(6, 4), normal({4, 9}, DType::bf16)}}};
}
std::vector<Sample> grad_samples() {
  const Attrs attrs = {{"rows", int64_t{11}}};
  // The ids of the second sample include -1 and ids past the end of the table.
  return {{.in = {labels(7, 11), normal({7, 3})}, .attrs = attrs},
          {.in = {labels_or_none(30, 13), normal({30, 37})}, .attrs = attrs},
          {.in = {labels(9, 11), normal({9, 1100}, DType::bf16)}, .attrs = attrs},
          {.in = {labels_or_none(150, 13), normal({150, 8})}, .attrs = attrs},
          {.in = {labels_or_none(30, 13), normal({30, 8}), normal({11, 8})}, .attrs = attrs},
          {.in = {labels(9, 11), normal({9, 37}, DType::bf16), normal({11, 37})}, .attrs = attrs}};
}

}  // namespace

const OpDef embedding{.name = "embedding",
                      .doc = "embedding(ids i32 [N], table [V, D]): rows of the table [N, D]",
                      .inputs = {"ids", "table"},
                      .infer = infer,
                      .vjp = vjp,
                      .cpu = kernel,
                      .gpu = true,
                      .reference = reference,
                      .cost =
                          [](const NodeView& node) {
                            return Cost{.flops = 0,
                                        .bytes = 2.0 * static_cast<double>(node.out_type(0).num_bytes())};
                          },
                      .samples = samples};

const OpDef embedding_grad{
    .name = "embedding_grad",
    .doc =
        "embedding_grad(ids, dy [N, D], residual?): sums of dy per id, plus the residual, "
        "f32 [rows, D]",
    .inputs = {"ids", "dy", "residual?"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost =
        [](const NodeView& node) {
          return Cost{.flops = static_cast<double>(node.in_type(1).shape.num_elements()),
                      .bytes = bytes_moved(node)};
        },
    .samples = grad_samples};

}  // namespace hearth::ops
