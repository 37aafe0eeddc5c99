#include <cmath>

#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "backend/cpu/simd/simd.h"
#include "ops/norm/norm.h"
#include "ops/row_kernel.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

struct Rows {
  DType dtype;
  int64_t count;
  int64_t width;
  float eps;
  float offset;
  /// Each part of the rows has its own scratch and partial sums.
  int parts;
  Range part(int64_t index) const { return split_range(count, parts, static_cast<int>(index)); }
};
Rows rows_of(const NodeView& node) {
  const Type& x = node.in_type(0);
  const int64_t count = num_rows(x.shape);
  const auto parts = std::clamp<int64_t>(x.shape.num_elements() / kGrain, 1, node.num_threads);
  return {.dtype = x.dtype,
          .count = count,
          .width = x.shape.back(),
          .eps = static_cast<float>(node.attrs.real_or("eps", 0)),
          .offset = static_cast<float>(node.attrs.real_or("offset", 0)),
          .parts = static_cast<int>(parts)};
}

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
  cpu::simd().dot(1, 1, count, a, count, b, count, &sum, 1, 1);
  return sum;
}

HEARTH_CLONES void normalise(const float* x, const float* weight, float rstd, float offset, float* y,
                             int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * rstd * (offset + weight[i]);
}
HEARTH_CLONES void weigh(const float* dy, const float* weight, float offset, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = dy[i] * (offset + weight[i]);
}
HEARTH_CLONES void add_scaled(const float* dy, const float* x, float rstd, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += dy[i] * x[i] * rstd;
}
HEARTH_CLONES void combine(const float* g, const float* x, float of_g, float of_x, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = of_g * g[i] - of_x * x[i];
}

std::string check(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || x.shape[1] < 1)
    return fmt::format("expected x to be floating [N, D], got {}", to_string(x));
  if (node.in_type(1) != f32_type({x.shape[1]}))
    return fmt::format("expected the weight to be f32[{}], got {}", x.shape[1], to_string(node.in_type(1)));
  return "";
}
Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  return {.out = {node.in_type(0), f32_type({node.in_type(0).shape[0]})}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type& x = node.in_type(0);
  if (node.in_type(2) != f32_type({x.shape[0]}))
    return refuse_type("rstd", fmt::format("f32[{}]", x.shape[0]), node.in_type(2));
  if (node.in_type(3) != x) return refuse_type("dy", to_string(x), node.in_type(3));
  return {.out = {x, node.in_type(1)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  const auto row = [=](const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t at = r * rows.width;
    const float* x = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch);
    float* y = run_to_write(rows.dtype, args.out[0], at, scratch + rows.width);
    const float mean = dot(x, x, rows.width) / static_cast<float>(rows.width);
    const float rstd = 1 / std::sqrt(mean + rows.eps);
    args.output<float>(1)[r] = rstd;
    normalise(x, args.input<float>(1), rstd, rows.offset, y, rows.width);
    cpu::store_f32(rows.dtype, y, args.out[0], at, rows.width);
  };
  return row_kernel(rows.count, rows.parts, 2 * rows.width, row);
}

/// One part's scratch on the way back: sums of dweight in double, their newest rows in float, three rows.
struct GradScratch {
  double* sums;
  float* run;
  float* x;
  float* dy;
  float* g;
  static int64_t bytes(int64_t width) {
    return cpu::round_up(width * int64_t{sizeof(double) + 4 * sizeof(float)}, 64);
  }
  GradScratch(std::byte* workspace, int64_t width, int64_t part) {
    sums = reinterpret_cast<double*>(workspace + part * bytes(width));
    run = reinterpret_cast<float*>(sums + width);
    x = run + width;
    dy = x + width;
    g = dy + width;
  }
};

/// With g = dy (offset + w): dx = rstd (g - x rstd^2 mean(g x)), dweight = sum of dy x rstd.
void grad_row(const Rows& rows, const KernelArgs& args, int64_t r, const GradScratch& scratch) {
  const int64_t at = r * rows.width;
  const float* x = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch.x);
  const float* dy = cpu::as_f32(rows.dtype, args.in[3], at, rows.width, scratch.dy);
  const float rstd = args.input<float>(2)[r];
  add_scaled(dy, x, rstd, scratch.run, rows.width);
  weigh(dy, args.input<float>(1), rows.offset, scratch.g, rows.width);
  const float mean = dot(scratch.g, x, rows.width) / static_cast<float>(rows.width);
  float* dx = run_to_write(rows.dtype, args.out[0], at, scratch.g);
  combine(scratch.g, x, rstd, rstd * rstd * rstd * mean, dx, rows.width);
  cpu::store_f32(rows.dtype, dx, args.out[0], at, rows.width);
}

void grad_part(const Rows& rows, const KernelArgs& args, int64_t part) {
  constexpr int64_t kRun = 64;  // rows added in f32 before their sum moves to double
  const GradScratch scratch(args.workspace, rows.width, part);
  std::fill_n(scratch.sums, rows.width, 0.0);
  const Range mine = rows.part(part);
  for (int64_t begin = mine.begin; begin < mine.end; begin += kRun) {
    std::fill_n(scratch.run, rows.width, 0.0F);
    for (int64_t r = begin; r < std::min(begin + kRun, mine.end); ++r) grad_row(rows, args, r, scratch);
    cpu::add_row(scratch.run, scratch.sums, rows.width);
  }
}

Kernel grad_kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows.parts, 1, [&](Range parts) {
      for (int64_t part = parts.begin; part < parts.end; ++part) grad_part(rows, args, part);
    });
    for (int64_t c = 0; c < rows.width; ++c) {
      double sum = 0;
      for (int part = 0; part < rows.parts; ++part)
        sum += GradScratch(args.workspace, rows.width, part).sums[c];
      args.output<float>(1)[c] = static_cast<float>(sum);
    }
  };
  return {.run = run, .workspace_bytes = rows.parts * GradScratch::bytes(rows.width)};
}

void reference(const ReferenceArgs& args) {
  const size_t width = args.in[1].size();
  const double eps = args.node.attrs.real_or("eps", 0), offset = args.node.attrs.real_or("offset", 0);
  for (size_t r = 0; r < args.out[1].size(); ++r) {
    double squares = 0;
    for (size_t c = 0; c < width; ++c) squares += args.in[0][r * width + c] * args.in[0][r * width + c];
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    args.out[1][r] = rstd;
    for (size_t c = 0; c < width; ++c)
      args.out[0][r * width + c] = args.in[0][r * width + c] * rstd * (offset + args.in[1][c]);
  }
}

void grad_reference(const ReferenceArgs& args) {
  const size_t width = args.in[1].size();
  const double offset = args.node.attrs.real_or("offset", 0);
  std::fill(args.out[1].begin(), args.out[1].end(), 0.0);
  for (size_t r = 0; r < args.in[2].size(); ++r) {
    const double* x = args.in[0].data() + r * width;
    const double* dy = args.in[3].data() + r * width;
    const double rstd = args.in[2][r];
    double mean = 0;
    for (size_t c = 0; c < width; ++c)
      mean += dy[c] * (offset + args.in[1][c]) * x[c] / static_cast<double>(width);
    for (size_t c = 0; c < width; ++c) {
      args.out[0][r * width + c] = rstd * (dy[c] * (offset + args.in[1][c]) - x[c] * rstd * rstd * mean);
      args.out[1][c] += dy[c] * x[c] * rstd;
    }
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone};
  const ir::Node& node = context.node;
  const auto grads = context.graph.add(op("rms_norm_grad"),
                                       {node.inputs[0], node.inputs[1], node.outputs[1], context.grad_out[0]},
                                       {{"offset", node.attrs.real_or("offset", 0)}}, node.name);
  return {grads[0], grads[1]};
}

std::vector<Sample> samples() {
  const auto sample = [](int64_t rows, int64_t width, double offset, DType dtype) {
    return Sample{.in = {normal({rows, width}, dtype), normal({width})},
                  .attrs = {{"eps", 1e-5}, {"offset", offset}}};
  };
  return {sample(5, 7, 0, DType::f32), sample(3, 1031, 0, DType::f32), sample(700, 37, 1, DType::f32),
          sample(6, 9, 1, DType::bf16), sample(4, 33, 0, DType::f16)};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> made = samples();
  for (Sample& sample : made) {
    sample.in.push_back(positive({sample.in[0].type.shape[0]}));
    sample.in.push_back(sample.in[0]);
    sample.attrs = {{"offset", sample.attrs.real("offset")}};
  }
  return made;
}

}  // namespace

const OpDef rms_norm{
    .name = "rms_norm",
    .doc = "rms_norm(x [N, D], weight [D]): y = x rstd (offset + weight), rstd = rsqrt(mean x^2 + eps)",
    .min_inputs = 2,
    .max_inputs = 2,
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = rms_norm_gpu,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 5); },
    .repeat = repeat_itself,
    .samples = samples};

const OpDef rms_norm_grad{.name = "rms_norm_grad",
                          .doc = "rms_norm_grad(x, weight, rstd, dy): dx, dweight f32",
                          .min_inputs = 4,
                          .max_inputs = 4,
                          .infer = infer_grad,
                          .no_vjp_because = kNoSecondDerivatives,
                          .cpu = grad_kernel,
                          .gpu = rms_norm_grad_gpu,
                          .reference = grad_reference,
                          .cost = [](const NodeView& node) { return stream_cost(node, 10); },
                          .samples = grad_samples};

}  // namespace hearth::ops
