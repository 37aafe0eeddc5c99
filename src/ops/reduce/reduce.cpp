#include "ops/reduce/reduce.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

/// Number of rows summed in f32 before the partial sum is added in double, which limits the rounding error of
/// long columns.
constexpr int64_t kRun = 64;

HEARTH_CLONES void add_sum(const float* in, int64_t count, double* sums) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t j = 0; j < 16; ++j) sums[j] += static_cast<double>(in[i + j]);
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(in[i]);
}
HEARTH_CLONES void add_squares(const float* in, int64_t count, double* sums) {
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t j = 0; j < 16; ++j) {
      const auto value = static_cast<double>(in[i + j]);
      sums[j] += value * value;
    }
  }
  for (; i < count; ++i) sums[0] += static_cast<double>(in[i]) * static_cast<double>(in[i]);
}

double total(const double* sums) {
  double sum = 0;
  for (int j = 0; j < 16; ++j) sum += sums[j];
  return sum;
}

Inferred infer_sum_leading(const NodeView& node) {
  if (node.in[0].shape.rank() < 1) return refuse("expected at least one axis");
  return {.out = {{.dtype = DType::f32, .shape = {node.in[0].shape.back()}}}, .error = ""};
}

/// Sums `rows` of an array into sums [width]; `partial` and `scratch` are [width].
void sum_rows(DType dtype, const void* data, Range rows, int64_t width, double* sums, float* partial,
              float* scratch) {
  std::fill(sums, sums + width, 0.0);
  for (int64_t row = rows.begin; row < rows.end; row += kRun) {
    std::fill(partial, partial + width, 0.0F);
    for (int64_t r = row; r < std::min(row + kRun, rows.end); ++r) {
      cpu::add_row(cpu::as_f32(dtype, data, r * width, width, scratch), partial, width);
    }
    cpu::add_row(partial, sums, width);
  }
}

Kernel sum_leading_kernel(const NodeView& node) {
  const DType dtype = node.in[0].dtype;
  const int64_t width = node.in[0].shape.back();
  const int64_t rows = num_rows(node.in[0].shape);
  const int parts = num_sum_parts(rows * width, kGrain);
  const int64_t part_bytes = cpu::round_up(width * 16, 64);
  const auto run = [=](const KernelArgs& args) {
    args.threads->for_parts(parts, [&](int part) {
      auto* sums = reinterpret_cast<double*>(args.workspace + part * part_bytes);
      auto* partial = reinterpret_cast<float*>(sums + width);
      sum_rows(dtype, args.in[0], split_range(rows, parts, part), width, sums, partial, partial + width);
    });
    for (int64_t c = 0; c < width; ++c) {
      double sum = 0;
      for (int part = 0; part < parts; ++part)
        sum += reinterpret_cast<double*>(args.workspace + part * part_bytes)[c];
      args.output<float>(0)[c] = static_cast<float>(sum);
    }
  };
  return {.run = run, .workspace_bytes = parts * part_bytes};
}

std::vector<ValueId> sum_leading_vjp(const VjpContext& c) {
  // The gradient of a column sum is dy repeated in every row, computed as zeros plus a bias.
  const ValueId zeros = emit(c, "scale", {c.node.inputs[0]}, {{"factor", 0.0}});
  return {emit(c, "bias_add", {zeros, c.grad_out[0]})};
}

Kernel sum_all_kernel(const NodeView& node) {
  const DType dtype = node.in[0].dtype;
  const int64_t count = node.in[0].shape.num_elements();
  return {.run = [=](const KernelArgs& args) {
    alignas(64) float scratch[kTile];
    double sums[16] = {};
    for (int64_t i = 0; i < count; i += kTile) {
      const int64_t n = std::min(kTile, count - i);
      add_sum(cpu::as_f32(dtype, args.in[0], i, n, scratch), n, sums);
    }
    *args.output<float>(0) = static_cast<float>(total(sums));
  }};
}

Inferred infer_sum_squares(const NodeView& node) {
  for (const Type& type : node.in) {
    if (type.dtype != DType::f32) return refuse("expected f32 inputs");
  }
  const int64_t count = num_squares(node);
  std::vector<int64_t> places = square_indices(node);
  if (places.size() != node.in.size()) return refuse("expected one index per input in places");
  std::ranges::sort(places);
  if (std::ranges::adjacent_find(places) != places.end() || places.front() < 0 || places.back() >= count)
    return refuse("expected distinct indices in [0, count) in places");
  return {.out = {{.dtype = DType::f32, .shape = {count}}}, .error = ""};
}

/// A part of an input whose squares are summed in one task.
struct SquaresPart {
  size_t input;
  Range elements;
};

/// Returns the kernel of sum_squares. The partial sums of an input are added in order.
Kernel sum_squares_kernel(const NodeView& node) {
  std::vector<SquaresPart> parts;
  for (size_t k = 0; k < node.in.size(); ++k) {
    const int64_t count = node.in[k].shape.num_elements();
    const int num_parts = num_sum_parts(count, kGrain);
    for (int i = 0; i < num_parts; ++i) parts.push_back({k, split_range(count, num_parts, i)});
  }
  const int64_t workspace_bytes = std::ssize(parts) * int64_t{sizeof(double)};
  const auto run = [parts, places = square_indices(node), count = num_squares(node)](const KernelArgs& args) {
    auto* partial = reinterpret_cast<double*>(args.workspace);
    args.threads->run_tasks(std::ssize(parts), args.threads->size(), [&](int64_t task, int) {
      const auto& [input, elements] = parts[static_cast<size_t>(task)];
      double sums[16] = {};
      add_squares(args.input<float>(input) + elements.begin, elements.size(), sums);
      partial[task] = total(sums);
    });
    std::fill_n(args.output<float>(0), count, 0.0F);
    for (size_t i = 0; i < parts.size();) {
      const size_t input = parts[i].input;
      double sum = 0;
      for (; i < parts.size() && parts[i].input == input; ++i) sum += partial[i];
      args.output<float>(0)[places[input]] = static_cast<float>(sum);
    }
  };
  return {.run = run, .workspace_bytes = workspace_bytes};
}

}  // namespace

int64_t num_squares(const NodeView& node) { return node.attrs.integer_or("count", std::ssize(node.in)); }

std::vector<int64_t> square_indices(const NodeView& node) {
  if (node.attrs.contains("places")) return node.attrs.list("places");
  std::vector<int64_t> places(node.in.size());
  std::iota(places.begin(), places.end(), 0);
  return places;
}

const OpDef sum_leading{
    .name = "sum_leading",
    .doc = "sum over every axis but the last, in f32",
    .inputs = {"x"},
    .infer = infer_sum_leading,
    .vjp = sum_leading_vjp,
    .cpu = sum_leading_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          const size_t width = args.out[0].size();
          std::fill(args.out[0].begin(), args.out[0].end(), 0.0);
          for (size_t i = 0; i < args.in[0].size(); ++i) args.out[0][i % width] += args.in[0][i];
        },
    .cost =
        [](const NodeView& node) {
          return Cost{static_cast<double>(node.in[0].shape.num_elements()), bytes_moved(node)};
        },
    .samples =
        [] {
          return std::vector<Sample>{{.in = {normal({5, 7})}},
                                     {.in = {normal({2, 40, 30, 17})}},
                                     {.in = {normal({9})}},
                                     {.in = {normal({300, 16}, DType::bf16)}}};
        }};

const OpDef sum_all{
    .name = "sum_all",
    .doc = "sum of every element, in f32",
    .inputs = {"x"},
    .infer = [](const NodeView&) { return Inferred{.out = {kScalar}, .error = ""}; },
    .vjp = [](const VjpContext& c) -> std::vector<ValueId> {
      const Type type = c.graph.type(c.node.inputs[0]);
      const ValueId wide = emit(c, "broadcast_scalar", {c.grad_out[0]}, {{"shape", axes_of(type.shape)}});
      return {as_dtype(c, wide, type.dtype)};
    },
    .cpu = sum_all_kernel,
    .gpu = true,
    .reference =
        [](const ReferenceArgs& args) {
          args.out[0][0] = 0;
          for (const double value : args.in[0]) args.out[0][0] += value;
        },
    .cost =
        [](const NodeView& node) {
          return Cost{static_cast<double>(node.in[0].shape.num_elements()), bytes_moved(node)};
        },
    .samples =
        [] {
          return std::vector<Sample>{
              {.in = {normal({33})}}, {.in = {normal({70, 50})}}, {.in = {normal({300}, DType::bf16)}}};
        }};

const OpDef sum_squares{.name = "sum_squares",
                        .doc =
                            "out[places[k]] = sum of squares of input k; attributes: count, the elements of "
                            "out (default: one per input; others are 0), and places (default: 0, 1, ...)",
                        .inputs = {"x+"},
                        .infer = infer_sum_squares,
                        .no_vjp_because = "gradient norms are computed after the backward pass",
                        .cpu = sum_squares_kernel,
                        .gpu = true,
                        .reference =
                            [](const ReferenceArgs& args) {
                              std::ranges::fill(args.out[0], 0);
                              const std::vector<int64_t> places = square_indices(args.node);
                              for (size_t k = 0; k < places.size(); ++k) {
                                for (const double value : args.in[k])
                                  args.out[0][static_cast<size_t>(places[k])] += value * value;
                              }
                            },
                        .cost =
                            [](const NodeView& node) {
                              return Cost{bytes_moved(node) / 2, bytes_moved(node)};
                            },
                        .samples =
                            [] {
                              return std::vector<Sample>{
                                  {.in = {normal({33})}},
                                  {.in = {normal({70, 50}), normal({3}), normal({1}), normal({40000})}},
                                  {.in = {normal({5}), normal({70, 50})},
                                   .attrs = {{"count", int64_t{4}}, {"places", std::vector<int64_t>{3, 1}}}}};
                            }};

}  // namespace hearth::ops
