#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "ops/reduce/reduce.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kLanes = 16;

HEARTH_CLONES void add_lanes(const float* in, int64_t count, double* lanes) {
  int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int64_t j = 0; j < kLanes; ++j) lanes[j] += static_cast<double>(in[i + j]);
  for (; i < count; ++i) lanes[0] += static_cast<double>(in[i]);
}

/// Shape [count, width] of an array; each row is summed in `parts` parts.
struct Rows {
  DType dtype;
  int64_t count;
  int64_t width;
  int parts;
};
Rows rows_of(const Type& type) {
  const int64_t count = type.shape[0], width = count == 0 ? 0 : type.shape.num_elements() / count;
  return {.dtype = type.dtype, .count = count, .width = width, .parts = num_sum_parts(width, kGrain)};
}

double sum_of(const Rows& rows, const void* data, int64_t row, Range columns) {
  alignas(64) float scratch[kTile];
  double lanes[kLanes] = {};
  for (int64_t i = columns.begin; i < columns.end; i += kTile) {
    const int64_t count = std::min(kTile, columns.end - i);
    add_lanes(cpu::as_f32(rows.dtype, data, row * rows.width + i, count, scratch), count, lanes);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

Kernel sum_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.in_type(0));
  const auto run = [rows](const KernelArgs& args) {
    auto* sums = reinterpret_cast<double*>(args.workspace);
    const int64_t grain = std::max<int64_t>(1, kGrain * rows.parts / std::max<int64_t>(1, rows.width));
    args.threads->parallel_for(rows.count * rows.parts, grain, [&](Range mine) {
      for (int64_t i = mine.begin; i < mine.end; ++i) {
        const Range columns = split_range(rows.width, rows.parts, static_cast<int>(i % rows.parts));
        sums[i] = sum_of(rows, args.in[0], i / rows.parts, columns);
      }
    });
    for (int64_t r = 0; r < rows.count; ++r) {
      double sum = 0;
      for (int part = 0; part < rows.parts; ++part) sum += sums[r * rows.parts + part];
      args.output<float>(0)[r] = static_cast<float>(sum);
    }
  };
  return {.run = run, .workspace_bytes = rows.count * rows.parts * int64_t{sizeof(double)}};
}

Inferred infer_sum(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() < 1 || !is_storage_float(x.dtype)) return refuse_type("x", "floating [N, ...]", x);
  return {.out = {f32_type({x.shape[0]})}, .error = ""};
}
Inferred infer_broadcast(const NodeView& node) {
  const Shape shape(node.attrs.list("shape"));
  const DType dtype = dtype_attr(node.attrs, "dtype", DType::f32);
  if (shape.rank() < 1 || node.in_type(0) != f32_type({shape[0]}))
    return refuse(fmt::format("expected an f32 value for each row of {}, got {}", to_string(shape),
                              to_string(node.in_type(0))));
  if (!is_storage_float(dtype)) return refuse("expected a floating dtype");
  return {.out = {{.dtype = dtype, .shape = shape}}, .error = ""};
}

Kernel broadcast_kernel(const NodeView& node) {
  const Rows rows = rows_of(node.out_type(0));
  return {.run = [rows](const KernelArgs& args) {
    args.threads->parallel_for(rows.count * rows.width, kGrain, [&](Range mine) {
      alignas(64) float scratch[kTile];
      for (int64_t i = mine.begin; i < mine.end;) {
        const int64_t row = i / rows.width, end = std::min(mine.end, (row + 1) * rows.width);
        const int64_t count = std::min(kTile, end - i);
        float* to = run_to_write(rows.dtype, args.out[0], i, scratch);
        std::fill_n(to, count, args.input<float>(0)[row]);
        cpu::store_f32(rows.dtype, to, args.out[0], i, count);
        i += count;
      }
    });
  }};
}

}  // namespace

const OpDef sum_trailing{
    .name = "sum_trailing",
    .doc = "sum over every axis but the first, in f32",
    .inputs = {"x"},
    .infer = infer_sum,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      const Type x = c.graph.type(c.node.inputs[0]);
      return {emit(c, "broadcast_trailing", {c.grad_out[0]},
                   {{"shape", axes_of(x.shape)}, {"dtype", std::string(dtype_name(x.dtype))}})};
    },
    .cpu = sum_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          const size_t rows = args.out[0].size();
          std::ranges::fill(args.out[0], 0.0);
          for (size_t i = 0; i < args.in[0].size(); ++i)
            args.out[0][i / (args.in[0].size() / rows)] += args.in[0][i];
        },
    .cost = [](const NodeView& node) { return stream_cost(node, 1); },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {normal({5, 7})}},
                                     {.in = {normal({9})}},
                                     {.in = {normal({3, 40, 30, 17})}},
                                     {.in = {normal({2, 9000}, DType::bf16)}},
                                     {.in = {normal({2, 3, 50}, DType::f16)}}};
        }};

const OpDef broadcast_trailing{
    .name = "broadcast_trailing",
    .doc = "f32 [N] to `shape` [N, ...] in `dtype` (default f32): repeats each value in its row",
    .inputs = {"x"},
    .infer = infer_broadcast,
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      return {emit(c, "sum_trailing", {c.grad_out[0]})};
    },
    .cpu = broadcast_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          const size_t width = args.out[0].size() / args.in[0].size();
          for (size_t i = 0; i < args.out[0].size(); ++i) args.out[0][i] = args.in[0][i / width];
        },
    .samples =
        [] {
          const auto sample = [](std::vector<int64_t> shape, const char* dtype) {
            return Sample{.in = {normal({shape[0]})},
                          .attrs = {{"shape", shape}, {"dtype", std::string(dtype)}}};
          };
          return std::vector<Sample>{sample({5, 7}, "f32"), sample({3, 40, 30, 17}, "f32"),
                                     sample({9}, "f32"), sample({2, 9001}, "bf16"), sample({4, 3, 5}, "f16")};
        }};

}  // namespace hearth::ops
