#include <cmath>

#include "backend/cpu/clones.h"
#include "ops/denoise/denoise.h"
#include "ops/denoise/sample_rows.h"
#include "ops/row_kernel.h"

namespace hearth::ops {
namespace {

enum In : size_t { kX, kShift, kScale };
enum GradIn : size_t { kGradX, kGradScale, kRstd, kMean, kDy };

SampleRows rows_of(const NodeView& node) { return {node.in_type(kX), node.in_type(1)}; }

/// Number of independent f32 partial sums of a reduction loop; the compiler keeps them in vector registers.
constexpr int64_t kSums = 16;
inline __attribute__((always_inline)) float total(const float (&sums)[kSums]) {
  float sum = 0;
  for (const float part : sums) sum += part;
  return sum;
}

struct Moments {
  float mean, rstd;
};
HEARTH_CLONES Moments moments_of(const float* x, int64_t count, float eps) {
  const auto size = static_cast<float>(count);
  const int64_t whole = count / kSums * kSums;
  float sums[kSums] = {};
  for (int64_t i = 0; i < whole; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) sums[j] += x[i + j];
  }
  for (int64_t i = whole; i < count; ++i) sums[i - whole] += x[i];
  const float mean = total(sums) / size;
  float squares[kSums] = {};
  for (int64_t i = 0; i < whole; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) squares[j] += (x[i + j] - mean) * (x[i + j] - mean);
  }
  for (int64_t i = whole; i < count; ++i) squares[i - whole] += (x[i] - mean) * (x[i] - mean);
  return {mean, 1 / std::sqrt(total(squares) / size + eps)};
}
HEARTH_CLONES void modulate(const float* x, Moments moments, const float* shift, const float* scale, float* y,
                            int64_t count) {
  for (int64_t i = 0; i < count; ++i) y[i] = (x[i] - moments.mean) * moments.rstd * (1 + scale[i]) + shift[i];
}

/// Means over a row of g and of g * normal, with normal = (x - mean) rstd and g = dy (1 + scale).
struct GradMeans {
  float g, g_normal;
};
/// Adds one row's contributions to dshift and dscale. Returns the row's GradMeans.
HEARTH_CLONES GradMeans sum_row(const float* x, Moments moments, const float* scale, const float* dy,
                                float* dshift, float* dscale, int64_t count) {
  float sums[kSums] = {}, dots[kSums] = {};
  const auto add = [&](int64_t i, int64_t j) __attribute__((always_inline)) {
    const float normal = (x[i] - moments.mean) * moments.rstd, g = dy[i] * (1 + scale[i]);
    dshift[i] += dy[i];
    dscale[i] += dy[i] * normal;
    sums[j] += g;
    dots[j] += g * normal;
  };
  const int64_t whole = count / kSums * kSums;
  for (int64_t i = 0; i < whole; i += kSums) {
    for (int64_t j = 0; j < kSums; ++j) add(i + j, j);
  }
  for (int64_t i = whole; i < count; ++i) add(i, i - whole);
  const auto size = static_cast<float>(count);
  return {total(sums) / size, total(dots) / size};
}
/// Computes dx = rstd (g - mean(g) - normal mean(g normal)) of one row.
HEARTH_CLONES void spread_row(const float* x, Moments moments, const float* scale, const float* dy,
                              GradMeans means, float* dx, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float normal = (x[i] - moments.mean) * moments.rstd;
    dx[i] = moments.rstd * (dy[i] * (1 + scale[i]) - means.g - normal * means.g_normal);
  }
}

Inferred infer(const NodeView& node) {
  if (auto error = modulation_fault(node, 2); !error.empty()) return refuse(error);
  const Type per_row = f32_type({node.in_type(kX).shape[0]});
  return {.out = {node.in_type(kX), per_row, per_row}, .error = ""};
}
Inferred infer_grad(const NodeView& node) {
  if (auto error = modulation_fault(node, 1); !error.empty()) return refuse(error);
  const Type& x = node.in_type(kGradX);
  const Type per_row = f32_type({x.shape[0]});
  for (const size_t i : {kRstd, kMean})
    if (node.in_type(i) != per_row) return refuse_type("rstd and mean", to_string(per_row), node.in_type(i));
  if (node.in_type(kDy) != x) return refuse_type("dy", to_string(x), node.in_type(kDy));
  return {.out = {x, node.in_type(kGradScale), node.in_type(kGradScale)}, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const SampleRows rows = rows_of(node);
  const auto eps = static_cast<float>(node.attrs.real("eps"));
  const int64_t width = rows.width;
  const auto row = [=](const KernelArgs& args, int64_t r, float* scratch) {
    const int64_t sample = r / rows.time;
    const float* x = rows.read(args.in[kX], r, scratch, 0);
    const float* shift = rows.read(args.in[kShift], sample, scratch, 1);
    const float* scale = rows.read(args.in[kScale], sample, scratch, 2);
    const Moments moments = moments_of(x, width, eps);
    args.output<float>(1)[r] = moments.rstd;
    args.output<float>(2)[r] = moments.mean;
    float* y = rows.to_write(args.out[0], r, scratch, 3);
    modulate(x, moments, shift, scale, y, width);
    rows.store(y, args.out[0], r);
  };
  return row_kernel(rows.batch * rows.time, node.num_threads, rows.scratch_floats(4), row);
}

/// Computes dx of the rows of one part, and the part's sums for dshift (sums[0, width)) and dscale
/// (sums[width, 2 width)).
void grad_part(const SampleRows& rows, const KernelArgs& args, int64_t part, float* sums, float* scratch) {
  const int64_t width = rows.width;
  std::fill_n(sums, 2 * width, 0.0F);
  const Range local = rows.rows_of_part(part);
  const float* scale = rows.read(args.in[kGradScale], part / rows.parts_of_sample(), scratch, 0);
  for (int64_t r = local.begin; r < local.end; ++r) {
    const Moments moments{.mean = args.input<float>(kMean)[r], .rstd = args.input<float>(kRstd)[r]};
    const float* x = rows.read(args.in[kGradX], r, scratch, 1);
    const float* dy = rows.read(args.in[kDy], r, scratch, 2);
    const GradMeans means = sum_row(x, moments, scale, dy, sums, sums + width, width);
    float* dx = rows.to_write(args.out[0], r, scratch, 3);
    spread_row(x, moments, scale, dy, means, dx, width);
    rows.store(dx, args.out[0], r);
  }
}

Kernel grad_kernel(const NodeView& node) {
  const SampleRows rows = rows_of(node);
  const int64_t of_part = 2 * rows.width, parts = rows.num_parts();
  const int64_t of_thread = rows.scratch_floats(4);
  const auto run = [=, num_threads = node.num_threads](const KernelArgs& args) {
    auto* sums = reinterpret_cast<float*>(args.workspace);
    float* scratch = sums + parts * of_part;
    args.threads->run_tasks(parts, num_threads, [&](int64_t part, int thread) {
      grad_part(rows, args, part, sums + part * of_part, scratch + thread * of_thread);
    });
    rows.add_parts(sums, of_part, args.out[1], *args.threads);
    rows.add_parts(sums + rows.width, of_part, args.out[2], *args.threads);
  };
  return {.run = run,
          .workspace_bytes = (parts * of_part + node.num_threads * of_thread) * int64_t{sizeof(float)}};
}

void reference(const ReferenceArgs& args) {
  const SampleRows rows = rows_of(args.node);
  const auto width = static_cast<size_t>(rows.width);
  const double eps = args.node.attrs.real("eps"), size = static_cast<double>(rows.width);
  for (size_t r = 0; r < args.out[1].size(); ++r) {
    const double* x = args.in[kX].data() + r * width;
    const size_t sample = r / static_cast<size_t>(rows.time) * width;
    double mean = 0, squares = 0;
    for (size_t c = 0; c < width; ++c) mean += x[c] / size;
    for (size_t c = 0; c < width; ++c) squares += (x[c] - mean) * (x[c] - mean) / size;
    args.out[1][r] = 1 / std::sqrt(squares + eps);
    args.out[2][r] = mean;
    for (size_t c = 0; c < width; ++c) {
      args.out[0][r * width + c] =
          (x[c] - mean) * args.out[1][r] * (1 + args.in[kScale][sample + c]) + args.in[kShift][sample + c];
    }
  }
}

void grad_reference(const ReferenceArgs& args) {
  const SampleRows rows = rows_of(args.node);
  const auto width = static_cast<size_t>(rows.width);
  for (const size_t i : {1, 2}) std::ranges::fill(args.out[i], 0.0);
  for (size_t r = 0; r < args.in[kRstd].size(); ++r) {
    const size_t at = r * width, sample = r / static_cast<size_t>(rows.time) * width;
    const double rstd = args.in[kRstd][r];
    const auto normal = [&](size_t c) { return (args.in[kGradX][at + c] - args.in[kMean][r]) * rstd; };
    const auto g = [&](size_t c) { return args.in[kDy][at + c] * (1 + args.in[kGradScale][sample + c]); };
    double mean_g = 0, mean_g_normal = 0;
    for (size_t c = 0; c < width; ++c) {
      mean_g += g(c) / static_cast<double>(width);
      mean_g_normal += g(c) * normal(c) / static_cast<double>(width);
    }
    for (size_t c = 0; c < width; ++c) {
      args.out[0][at + c] = rstd * (g(c) - mean_g - normal(c) * mean_g_normal);
      args.out[1][sample + c] += args.in[kDy][at + c];
      args.out[2][sample + c] += args.in[kDy][at + c] * normal(c);
    }
  }
}

std::vector<ValueId> vjp(const VjpContext& context) {
  if (context.grad_out[0] == kNone) return {kNone, kNone, kNone};
  const ir::Node node = context.node;
  return context.graph.add(
      modulated_norm_grad,
      {node.inputs[kX], node.inputs[kScale], node.outputs[1], node.outputs[2], context.grad_out[0]}, {},
      node.name);
}

Sample sample(int64_t batch, int64_t time, int64_t width, DType dtype) {
  const SampleInput modulation = normal({batch, width}, dtype);
  return {.in = {normal({batch * time, width}, dtype), modulation, modulation}, .attrs = {{"eps", 1e-6}}};
}
std::vector<Sample> samples() {
  return {sample(2, 3, 7, DType::f32),  sample(1, 200, 37, DType::f32), sample(3, 1, 1031, DType::f32),
          sample(2, 5, 64, DType::f32), sample(3, 3, 9, DType::bf16),   sample(2, 70, 40, DType::bf16),
          sample(1, 2, 33, DType::f16), sample(2, 2, 2056, DType::bf16)};
}
std::vector<Sample> grad_samples() {
  std::vector<Sample> result = samples();
  for (Sample& sample : result) {
    const SampleInput x = sample.in[kX];
    const int64_t rows = x.type.shape[0];
    sample = {.in = {x, sample.in[kScale], positive({rows}), normal({rows}), x}};
  }
  return result;
}

/// Returns the cost; x and dy are counted twice, because they are read again for the sums over rows.
Cost grad_cost(const NodeView& node) {
  Cost cost = stream_cost(node, 14);
  cost.bytes += 2 * static_cast<double>(node.in_type(0).num_bytes());
  return cost;
}

}  // namespace

const OpDef modulated_norm{.name = "modulated_norm",
                           .doc =
                               "modulated_norm(x [N, D], shift [B, D], scale [B, D]){eps}: (x - mean) rstd "
                               "(1 + scale) + shift of the "
                               "row's sample, rstd, mean",
                           .inputs = {"x", "shift", "scale"},
                           .infer = infer,
                           .vjp = vjp,
                           .cpu = kernel,
                           .gpu = true,
                           .reference = reference,
                           .cost = [](const NodeView& node) { return stream_cost(node, 8); },
                           .num_following = 3,
                           .repeat = repeat_itself,
                           .samples = samples};

const OpDef modulated_norm_grad{.name = "modulated_norm_grad",
                                .doc = "modulated_norm_grad(x, scale, rstd, mean, dy): dx, dshift, dscale",
                                .inputs = {"x", "scale", "rstd", "mean", "dy"},
                                .infer = infer_grad,
                                .no_vjp_because = kNoSecondDerivatives,
                                .cpu = grad_kernel,
                                .gpu = true,
                                .reference = grad_reference,
                                .cost = grad_cost,
                                .samples = grad_samples};

}  // namespace hearth::ops
