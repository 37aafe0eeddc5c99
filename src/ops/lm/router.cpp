#include "backend/cpu/convert.h"
#include "backend/cpu/simd/simd.h"
#include "ops/lm/lm.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

struct Rows {
  DType dtype;
  int64_t count;
  int64_t width;

  template <typename Row>
  Kernel kernel(int num_threads, Row row) const {
    const int64_t grain = std::max<int64_t>(1, kGrain / std::max<int64_t>(1, width));
    const auto parts = static_cast<int>(std::clamp<int64_t>(count / grain, 1, num_threads));
    return row_kernel(count, parts, 2 * width, row);
  }
};
Rows rows_of(const NodeView& node) {
  const Type& x = node.in_type(0);
  return {.dtype = x.dtype, .count = num_rows(x.shape), .width = x.shape.back()};
}

/// True if element i is one of the `count` largest elements of the row; of equal elements, the first ones are
/// selected.
template <typename T>
bool is_chosen(const T* row, int64_t width, int64_t i, int64_t count) {
  int64_t before = 0;
  for (int64_t j = 0; j < width; ++j) before += row[j] > row[i] || (row[j] == row[i] && j < i) ? 1 : 0;
  return before < count;
}

std::string check_matrix(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() == 2 && x.shape[1] > 0 && is_storage_float(x.dtype)) return "";
  return fmt::format("expected x to be floating [N, D], got {}", to_string(x));
}
Type per_row(const NodeView& node) {
  const Type& x = node.in_type(0);
  return {.dtype = x.dtype, .shape = {x.shape[0], 1}};
}

Inferred infer_mask(const NodeView& node) {
  if (auto error = check_matrix(node); !error.empty()) return refuse(error);
  const int64_t count = node.attrs.integer("count"), width = node.in_type(0).shape[1];
  if (count < 1 || count > width)
    return refuse(fmt::format("expected a count in [1, {}], got {}", width, count));
  return {.out = {node.in_type(0)}, .error = ""};
}
Inferred infer_scale_rows(const NodeView& node) {
  if (auto error = check_matrix(node); !error.empty()) return refuse(error);
  if (node.in_type(1) != per_row(node))
    return refuse_type("the factors", to_string(per_row(node)), node.in_type(1));
  return {.out = {node.in_type(0)}, .error = ""};
}
Inferred infer_row_dot(const NodeView& node) {
  if (auto error = check_matrix(node); !error.empty()) return refuse(error);
  if (node.in_type(1) != node.in_type(0))
    return refuse_type("b", to_string(node.in_type(0)), node.in_type(1));
  return {.out = {per_row(node)}, .error = ""};
}

Kernel mask_kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  return rows.kernel(node.num_threads, [rows, count = node.attrs.integer("count")](
                                           const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t at = r * rows.width;
    const float* row = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch);
    float* out = run_to_write(rows.dtype, args.out[0], at, scratch + rows.width);
    for (int64_t i = 0; i < rows.width; ++i) out[i] = is_chosen(row, rows.width, i, count) ? 1.0F : 0.0F;
    cpu::store_f32(rows.dtype, out, args.out[0], at, rows.width);
  });
}
Kernel scale_rows_kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  return rows.kernel(node.num_threads, [rows](const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t at = r * rows.width;
    float one = 0;
    const float factor = *cpu::as_f32(rows.dtype, args.in[1], r, 1, &one);
    const float* row = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch);
    float* out = run_to_write(rows.dtype, args.out[0], at, scratch + rows.width);
    for (int64_t i = 0; i < rows.width; ++i) out[i] = row[i] * factor;
    cpu::store_f32(rows.dtype, out, args.out[0], at, rows.width);
  });
}
Kernel row_dot_kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  return rows.kernel(node.num_threads, [rows](const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t at = r * rows.width, width = rows.width;
    const float* a = cpu::as_f32(rows.dtype, args.in[0], at, width, scratch);
    const float* b = cpu::as_f32(rows.dtype, args.in[1], at, width, scratch + width);
    float sum = 0;
    cpu::simd().dot(1, 1, width, a, width, b, width, &sum, 1, 1);
    cpu::store_f32(rows.dtype, &sum, args.out[0], r, 1);
  });
}

void mask_reference(const ReferenceArgs& args) {
  const Rows rows = rows_of(args.node);
  for (int64_t i = 0; i < rows.count * rows.width; ++i) {
    const double* row = args.in[0].data() + i / rows.width * rows.width;
    const bool chosen = is_chosen(row, rows.width, i % rows.width, args.node.attrs.integer("count"));
    args.out[0][static_cast<size_t>(i)] = chosen ? 1 : 0;
  }
}
void scale_rows_reference(const ReferenceArgs& args) {
  const auto width = static_cast<size_t>(rows_of(args.node).width);
  for (size_t i = 0; i < args.in[0].size(); ++i) args.out[0][i] = args.in[0][i] * args.in[1][i / width];
}
void row_dot_reference(const ReferenceArgs& args) {
  const auto width = static_cast<size_t>(rows_of(args.node).width);
  std::ranges::fill(args.out[0], 0.0);
  for (size_t i = 0; i < args.in[0].size(); ++i) args.out[0][i / width] += args.in[0][i] * args.in[1][i];
}

std::vector<Sample> mask_samples() {
  std::vector<Sample> result;
  for (const auto& [shape, count, dtype] : {std::tuple{Shape{7, 10}, 3, DType::f32},
                                            {Shape{300, 128}, 8, DType::f32},
                                            {Shape{5, 4}, 4, DType::f32},
                                            {Shape{41, 60}, 2, DType::bf16}})
    result.push_back({.in = {normal(shape, dtype)}, .attrs = {{"count", int64_t{count}}}});
  return result;
}
std::vector<Sample> scale_rows_samples() {
  return {{.in = {normal({7, 10}), normal({7, 1})}},
          {.in = {normal({41, 1031}), normal({41, 1})}},
          {.in = {normal({6, 9}, DType::bf16), normal({6, 1}, DType::bf16)}}};
}
std::vector<Sample> row_dot_samples() {
  return {{.in = {normal({7, 10}), normal({7, 10})}},
          {.in = {normal({41, 1031}), normal({41, 1031})}},
          {.in = {normal({6, 9}, DType::bf16), normal({6, 9}, DType::bf16)}}};
}

}  // namespace

const OpDef top_k_mask{
    .name = "top_k_mask",
    .doc = "top_k_mask(x [N, D]): 1 for the `count` largest elements of each row, otherwise 0",
    .inputs = {"x"},
    .infer = infer_mask,
    .vjp = [](const VjpContext&) -> std::vector<ValueId> { return {kNone}; },
    .cpu = mask_kernel,
    .gpu = true,
    .reference = mask_reference,
    .cost =
        [](const NodeView& node) {
          return stream_cost(node, static_cast<double>(node.in_type(0).shape.back()));
        },
    .samples = mask_samples};

const OpDef scale_rows{.name = "scale_rows",
                       .doc = "scale_rows(x [N, D], s [N, 1]): row i times s[i]",
                       .inputs = {"x", "s"},
                       .infer = infer_scale_rows,
                       .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                         return {emit(c, "scale_rows", {c.grad_out[0], c.node.inputs[1]}),
                                 emit(c, "row_dot", {c.grad_out[0], c.node.inputs[0]})};
                       },
                       .cpu = scale_rows_kernel,
                       .gpu = true,
                       .reference = scale_rows_reference,
                       .cost = [](const NodeView& node) { return stream_cost(node, 1); },
                       .samples = scale_rows_samples};

const OpDef row_dot{.name = "row_dot",
                    .doc = "row_dot(a [N, D], b [N, D]): sum of a b over each row, [N, 1]",
                    .inputs = {"a", "b"},
                    .infer = infer_row_dot,
                    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
                      return {emit(c, "scale_rows", {c.node.inputs[1], c.grad_out[0]}),
                              emit(c, "scale_rows", {c.node.inputs[0], c.grad_out[0]})};
                    },
                    .cpu = row_dot_kernel,
                    .gpu = true,
                    .reference = row_dot_reference,
                    .cost = [](const NodeView& node) { return stream_cost(node, 2); },
                    .samples = row_dot_samples};

}  // namespace hearth::ops
