#include <cmath>
#include <numeric>

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
  DType dtype;      ///< of x and dx
  DType out_dtype;  ///< of y, or of the gradient's copy of dx
  int64_t count;
  int64_t width;
  float eps;
  float offset;
  /// True for layer_norm, which subtracts the mean of each row and adds a bias; false for rms_norm.
  bool centered;
  /// Number of parts of the rows. Each part has its own scratch and partial sums.
  int parts;
  Range part(int64_t index) const { return split_range(count, parts, static_cast<int>(index)); }
};
/// Index of the means among the inputs of layer_norm_grad; rms_norm_grad may have its residual there.
constexpr size_t kMeans = 4;
/// True for a node of layer_norm or its gradient, which have one more input than rms_norm: the bias, or the
/// means.
bool is_centered(const NodeView& node) {
  return node.in.size() == 3 || (node.in.size() > kMeans && node.in_type(kMeans).shape.rank() == 1);
}
Rows rows_of(const NodeView& node) {
  const Type& x = node.in_type(0);
  const int64_t count = num_rows(x.shape);
  return {.dtype = x.dtype,
          .out_dtype = dtype_attr(node.attrs, "out_dtype", x.dtype),
          .count = count,
          .width = x.shape.back(),
          .eps = static_cast<float>(node.attrs.real_or("eps", 0)),
          .offset = static_cast<float>(node.attrs.real_or("offset", 0)),
          .centered = is_centered(node),
          .parts = num_sum_parts(x.shape.num_elements(), kGrain)};
}

float dot(const float* a, const float* b, int64_t count) {
  float sum = 0;
  cpu::simd().dot(1, 1, count, a, count, b, count, &sum, 1, 1);
  return sum;
}

HEARTH_CLONES void subtract(const float* x, float mean, float* y, int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] - mean;
}
HEARTH_CLONES void normalize(const float* x, const float* weight, float rstd, float offset, float* y,
                             int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = x[i] * rstd * (offset + weight[i]);
}
HEARTH_CLONES void weigh(const float* dy, const float* weight, float offset, float* g, int64_t count) {
  for (int64_t i = 0; i < count; ++i) g[i] = dy[i] * (offset + weight[i]);
}
HEARTH_CLONES void add_scaled(const float* dy, const float* x, float rstd, float* sum, int64_t count) {
  for (int64_t i = 0; i < count; ++i) sum[i] += dy[i] * x[i] * rstd;
}
HEARTH_CLONES void combine(const float* g, const float* x, float of_g, float of_x, float less, float* dx,
                           int64_t count) {
  for (int64_t i = 0; i < count; ++i) dx[i] = of_g * g[i] - of_x * x[i] - less;
}
HEARTH_CLONES float mean_of(const float* x, int64_t count) {
  constexpr int64_t kSums = 16;
  float sums[kSums] = {};
  for (int64_t i = 0; i + kSums <= count; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += x[i + j];
  }
  for (int64_t i = count / kSums * kSums; i < count; ++i) sums[i % kSums] += x[i];
  return std::accumulate(sums, sums + kSums, 0.0F) / static_cast<float>(count);
}

std::string check(const NodeView& node) {
  const Type& x = node.in_type(0);
  if (x.shape.rank() != 2 || !is_storage_float(x.dtype) || x.shape[1] < 1)
    return fmt::format("expected x to be floating [N, D], got {}", to_string(x));
  if (node.in_type(1) != f32_type({x.shape[1]}))
    return fmt::format("expected the weight to be f32[{}], got {}", x.shape[1], to_string(node.in_type(1)));
  if (x.dtype != DType::f32 && rows_of(node).out_dtype != x.dtype)
    return fmt::format("expected out_dtype {} for x of that dtype, got {}", dtype_name(x.dtype),
                       node.attrs.text("out_dtype"));
  return "";
}
Inferred infer(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type& x = node.in_type(0);
  const Type y{.dtype = rows_of(node).out_dtype, .shape = x.shape}, per_row = f32_type({x.shape[0]});
  if (!is_centered(node)) return {.out = {y, per_row}, .error = ""};
  if (node.in_type(2) != node.in_type(1))
    return refuse_type("the bias", to_string(node.in_type(1)), node.in_type(2));
  return {.out = {y, per_row, per_row}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = check(node); !error.empty()) return refuse(error);
  const Type &x = node.in_type(0), &weight = node.in_type(1);
  const Type per_row = f32_type({x.shape[0]});
  if (node.in_type(2) != per_row) return refuse_type("rstd", to_string(per_row), node.in_type(2));
  if (node.in_type(3) != x) return refuse_type("dy", to_string(x), node.in_type(3));
  const bool centered = is_centered(node);
  if (centered && node.in_type(kMeans) != per_row)
    return refuse_type("mean", to_string(per_row), node.in_type(kMeans));
  const size_t residual = row_norm_residual(centered);
  if (node.has_input(residual) && node.in_type(residual) != x)
    return refuse_type("the residual", to_string(x), node.in_type(residual));
  std::vector<Type> out = {x, weight};
  if (centered) out.push_back(weight);
  if (node.attrs.contains("out_dtype")) out.push_back({.dtype = rows_of(node).out_dtype, .shape = x.shape});
  return {.out = std::move(out), .error = ""};
}

/// Returns the row x itself for rms_norm; for layer_norm, x - mean, stored to `to`.
const float* centered_row(const Rows& rows, const float* x, float mean, float* to) {
  if (!rows.centered) return x;
  subtract(x, mean, to, rows.width);
  return to;
}

Kernel kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  const auto row = [=](const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t at = r * rows.width;
    const float* given = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch);
    const float mean = rows.centered ? mean_of(given, rows.width) : 0.0F;
    const float* x = centered_row(rows, given, mean, scratch);
    float* y = run_to_write(rows.out_dtype, args.out[0], at, scratch + rows.width);
    const float rstd = 1 / std::sqrt(dot(x, x, rows.width) / static_cast<float>(rows.width) + rows.eps);
    args.output<float>(1)[r] = rstd;
    normalize(x, args.input<float>(1), rstd, rows.offset, y, rows.width);
    if (rows.centered) {
      args.output<float>(2)[r] = mean;
      cpu::add_row(args.input<float>(2), y, rows.width);
    }
    cpu::store_f32(rows.out_dtype, y, args.out[0], at, rows.width);
  };
  return row_kernel(rows.count, rows.parts, 2 * rows.width, row);
}

/// Scratch of one part. `sums`: sums over the part's rows for dweight (dy x rstd), then for dbias (dy,
/// layer_norm only). `run`: the same sums in f32 over the latest rows, which are not yet in `sums`. x, dy and
/// g: one row each.
struct GradScratch {
  double* sums;
  float* run;
  float* x;
  float* dy;
  float* g;
  static int64_t num_sums(const Rows& rows) { return rows.centered ? 2 * rows.width : rows.width; }
  static int64_t bytes(const Rows& rows) {
    return cpu::round_up(
        num_sums(rows) * int64_t{sizeof(double) + sizeof(float)} + 3 * rows.width * int64_t{sizeof(float)},
        64);
  }
  GradScratch(std::byte* workspace, const Rows& rows, int64_t part) {
    sums = reinterpret_cast<double*>(workspace + part * bytes(rows));
    run = reinterpret_cast<float*>(sums + num_sums(rows));
    x = run + num_sums(rows);
    dy = x + rows.width;
    g = dy + rows.width;
  }
};

/// Computes dx of row r, plus the residual, and adds the row's terms to scratch.run. With g = dy (offset +
/// weight): dx = rstd (g - x rstd^2 mean(g x)) for rms_norm; for layer_norm x is replaced by x - mean, and
/// rstd mean(g) is subtracted.
void grad_row(const Rows& rows, const KernelArgs& args, int64_t r, const GradScratch& scratch) {
  const int64_t at = r * rows.width;
  const float* given = cpu::as_f32(rows.dtype, args.in[0], at, rows.width, scratch.x);
  const float* x = centered_row(rows, given, rows.centered ? args.input<float>(4)[r] : 0.0F, scratch.x);
  const float* dy = cpu::as_f32(rows.dtype, args.in[3], at, rows.width, scratch.dy);
  const float rstd = args.input<float>(2)[r];
  add_scaled(dy, x, rstd, scratch.run, rows.width);
  if (rows.centered) cpu::add_row(dy, scratch.run + rows.width, rows.width);
  weigh(dy, args.input<float>(1), rows.offset, scratch.g, rows.width);
  const float mean = dot(scratch.g, x, rows.width) / static_cast<float>(rows.width);
  const float less = rows.centered ? rstd * mean_of(scratch.g, rows.width) : 0.0F;
  float* dx = run_to_write(rows.dtype, args.out[0], at, scratch.g);
  combine(scratch.g, x, rstd, rstd * rstd * rstd * mean, less, dx, rows.width);
  if (const size_t residual = row_norm_residual(rows.centered);
      residual < args.in.size() && args.in[residual] != nullptr)
    cpu::add_row(cpu::as_f32(rows.dtype, args.in[residual], at, rows.width, scratch.x), dx, rows.width);
  cpu::store_f32(rows.dtype, dx, args.out[0], at, rows.width);
  if (const size_t copy = row_norm_copy(rows.centered); copy < args.out.size())
    cpu::store_f32(rows.out_dtype, dx, args.out[copy], at, rows.width);
}

void grad_part(const Rows& rows, const KernelArgs& args, int64_t part) {
  constexpr int64_t kRun = 64;  // rows summed in f32 before the sum is added in double
  const GradScratch scratch(args.workspace, rows, part);
  const int64_t num_sums = GradScratch::num_sums(rows);
  std::fill_n(scratch.sums, num_sums, 0.0);
  const Range mine = rows.part(part);
  for (int64_t begin = mine.begin; begin < mine.end; begin += kRun) {
    std::fill_n(scratch.run, num_sums, 0.0F);
    for (int64_t r = begin; r < std::min(begin + kRun, mine.end); ++r) grad_row(rows, args, r, scratch);
    cpu::add_row(scratch.run, scratch.sums, num_sums);
  }
}

Kernel grad_kernel(const NodeView& node) {
  const Rows rows = rows_of(node);
  const auto run = [=](const KernelArgs& args) {
    args.threads->parallel_for(rows.parts, 1, [&](Range parts) {
      for (int64_t part = parts.begin; part < parts.end; ++part) grad_part(rows, args, part);
    });
    for (int64_t c = 0; c < GradScratch::num_sums(rows); ++c) {
      double sum = 0;
      for (int part = 0; part < rows.parts; ++part) sum += GradScratch(args.workspace, rows, part).sums[c];
      args.output<float>(c < rows.width ? 1 : 2)[c % rows.width] = static_cast<float>(sum);
    }
  };
  return {.run = run, .workspace_bytes = rows.parts * GradScratch::bytes(rows)};
}

void reference(const ReferenceArgs& args) {
  const size_t width = args.in[1].size();
  const bool centered = is_centered(args.node);
  const double eps = args.node.attrs.real_or("eps", 0), offset = args.node.attrs.real_or("offset", 0);
  for (size_t r = 0; r < args.out[1].size(); ++r) {
    const auto x = args.in[0].begin() + static_cast<std::ptrdiff_t>(r * width);
    const auto end = x + static_cast<std::ptrdiff_t>(width);
    const double mean = centered ? std::accumulate(x, end, 0.0) / static_cast<double>(width) : 0.0;
    double squares = 0;
    for (auto at = x; at != end; ++at) squares += (*at - mean) * (*at - mean);
    const double rstd = 1 / std::sqrt(squares / static_cast<double>(width) + eps);
    args.out[1][r] = rstd;
    if (centered) args.out[2][r] = mean;
    for (size_t c = 0; c < width; ++c) {
      args.out[0][r * width + c] = (args.in[0][r * width + c] - mean) * rstd * (offset + args.in[1][c]) +
                                   (centered ? args.in[2][c] : 0.0);
    }
  }
}

void grad_reference(const ReferenceArgs& args) {
  const size_t width = args.in[1].size();
  const bool centered = is_centered(args.node);
  const double offset = args.node.attrs.real_or("offset", 0);
  const size_t residual = row_norm_residual(centered), copy = row_norm_copy(centered);
  for (size_t i = 1; i < args.out.size(); ++i) std::fill(args.out[i].begin(), args.out[i].end(), 0.0);
  for (size_t r = 0; r < args.in[2].size(); ++r) {
    const double* dy = args.in[3].data() + r * width;
    const double rstd = args.in[2][r];
    std::vector<double> x(args.in[0].begin() + static_cast<std::ptrdiff_t>(r * width),
                          args.in[0].begin() + static_cast<std::ptrdiff_t>((r + 1) * width));
    if (centered) std::for_each(x.begin(), x.end(), [&](double& value) { value -= args.in[4][r]; });
    double mean_gx = 0, mean_g = 0;
    for (size_t c = 0; c < width; ++c) {
      const double g = dy[c] * (offset + args.in[1][c]) / static_cast<double>(width);
      mean_gx += g * x[c];
      if (centered) mean_g += g;
    }
    for (size_t c = 0; c < width; ++c) {
      args.out[0][r * width + c] =
          rstd * (dy[c] * (offset + args.in[1][c]) - x[c] * rstd * rstd * mean_gx - mean_g);
      if (args.node.has_input(residual)) args.out[0][r * width + c] += args.in[residual][r * width + c];
      if (copy < args.out.size()) args.out[copy][r * width + c] = args.out[0][r * width + c];
      args.out[1][c] += dy[c] * x[c] * rstd;
      if (centered) args.out[2][c] += dy[c];
    }
  }
}

/// Returns the gradient of y in x's dtype.
ValueId gradient_of_y(const VjpContext& context) {
  return as_dtype(context, context.grad_out[0], context.graph.type(context.node.inputs[0]).dtype);
}
std::vector<ValueId> vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  if (context.grad_out[0] == kNone) return std::vector<ValueId>(node.inputs.size(), kNone);
  return context.graph.add(rms_norm_grad,
                           {node.inputs[0], node.inputs[1], node.outputs[1], gradient_of_y(context)},
                           {{"offset", node.attrs.real_or("offset", 0)}}, node.name);
}
std::vector<ValueId> layer_vjp(const VjpContext& context) {
  const ir::Node node = context.node;
  if (context.grad_out[0] == kNone) return std::vector<ValueId>(node.inputs.size(), kNone);
  return context.graph.add(
      layer_norm_grad,
      {node.inputs[0], node.inputs[1], node.outputs[1], gradient_of_y(context), node.outputs[2]}, {},
      node.name);
}

std::vector<Sample> samples() {
  const auto sample = [](int64_t rows, int64_t width, double offset, DType dtype, DType out) {
    Attrs attrs = {{"eps", 1e-5}, {"offset", offset}};
    if (out != dtype) attrs.set("out_dtype", std::string(dtype_name(out)));
    return Sample{.in = {normal({rows, width}, dtype), normal({width})},
                  .attrs = attrs,
                  .tolerance = out == DType::f32 ? 1e-5 : 1e-2};
  };
  return {sample(5, 7, 0, DType::f32, DType::f32),    sample(3, 1031, 0, DType::f32, DType::f32),
          sample(700, 37, 1, DType::f32, DType::f32), sample(6, 9, 1, DType::bf16, DType::bf16),
          sample(4, 33, 0, DType::f16, DType::f16),   sample(6, 70, 0, DType::f32, DType::bf16),
          sample(6, 70, 1, DType::f32, DType::f16)};
}
std::vector<Sample> layer_samples() {
  std::vector<Sample> made = samples();
  for (Sample& sample : made) {
    sample.in.push_back(sample.in[1]);
    sample.attrs.set("offset", 0.0);
  }
  return made;
}
/// Makes samples of the gradient from those of the norm, each without and with a residual. Where y has
/// another dtype than x, the gradient stores a copy of dx.
std::vector<Sample> gradient_samples(const std::vector<Sample>& norms, bool centered) {
  std::vector<Sample> made;
  for (Sample sample : norms) {
    const ir::SampleInput x = sample.in[0];
    sample.in.resize(2);
    sample.in.push_back(positive({x.type.shape[0]}));
    sample.in.push_back(x);
    if (centered) sample.in.push_back(normal({x.type.shape[0]}));
    made.push_back(sample);
    sample.in.push_back(x);
    made.push_back(std::move(sample));
  }
  return made;
}
std::vector<Sample> grad_samples() { return gradient_samples(samples(), false); }
std::vector<Sample> layer_grad_samples() { return gradient_samples(layer_samples(), true); }

}  // namespace

const OpDef rms_norm{
    .name = "rms_norm",
    .doc =
        "rms_norm(x [N, D], weight [D]): y = x rstd (offset + weight) in out_dtype (default: x's), "
        "rstd = rsqrt(mean x^2 + eps)",
    .inputs = {"x", "weight"},
    .infer = infer,
    .vjp = vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 5); },
    .repeat = repeat_itself,
    .samples = samples};

const OpDef rms_norm_grad{
    .name = "rms_norm_grad",
    .doc =
        "rms_norm_grad(x, weight, rstd, dy, residual?): dx + residual, dweight f32, and "
        "the first again in out_dtype if that is given",
    .inputs = {"x", "weight", "rstd", "dy", "residual?"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 10); },
    .samples = grad_samples};

const OpDef layer_norm{
    .name = "layer_norm",
    .doc =
        "layer_norm(x [N, D], weight, bias): y = (x - mean) rstd weight + bias in out_dtype (default: "
        "x's), rstd, mean; rstd = rsqrt(variance + eps)",
    .inputs = {"x", "weight", "bias"},
    .infer = infer,
    .vjp = layer_vjp,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 8); },
    .repeat = repeat_itself,
    .samples = layer_samples};

const OpDef layer_norm_grad{
    .name = "layer_norm_grad",
    .doc =
        "layer_norm_grad(x, weight, rstd, dy, mean, residual?): dx + residual, dweight "
        "f32, dbias f32, and the first again in out_dtype if that is given",
    .inputs = {"x", "weight", "rstd", "dy", "mean", "residual?"},
    .infer = infer_grad,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = grad_kernel,
    .gpu = true,
    .reference = grad_reference,
    .cost = [](const NodeView& node) { return stream_cost(node, 14); },
    .samples = layer_grad_samples};

}  // namespace hearth::ops
