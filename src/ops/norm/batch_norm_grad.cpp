#include "backend/cpu/clones.h"
#include "backend/cpu/convert.h"
#include "backend/cpu/rows.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

// With g = dy masked by y > 0 and xhat = (x - mean) rstd:
// dbias = sum g, dweight = sum g xhat, dx = weight rstd (g - dbias / n - xhat dweight / n).

struct NormGradIn {
  enum : size_t { x, weight, mean, rstd, dy, y };
};

template <bool kMask>
inline __attribute__((always_inline)) void sum_rows(const float* x, const float* dy, const float* y,
                                                    const float* mean, int64_t rows, int64_t width,
                                                    float* sum, float* sum_x) {
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float g = kMask && !(y[at + c] > 0) ? 0.0F : dy[at + c];
      sum[c] += g;
      sum_x[c] += g * (x[at + c] - mean[c]);
    }
  }
}
HEARTH_CLONES void sum_tile(const float* x, const float* dy, const float* y, const float* mean, int64_t rows,
                            int64_t width, float* sum, float* sum_x) {
  for (int64_t c = 0; c < width; ++c) sum[c] = sum_x[c] = 0;
  y == nullptr ? sum_rows<false>(x, dy, y, mean, rows, width, sum, sum_x)
               : sum_rows<true>(x, dy, y, mean, rows, width, sum, sum_x);
}

/// Per channel: dx = of_dy g + of_x (x - mean) + constant.
struct Weights {
  const float* mean;
  const float* of_dy;
  const float* of_x;
  const float* constant;
};

template <bool kMask>
inline __attribute__((always_inline)) void apply_rows(const Weights& weights, const float* x, const float* dy,
                                                      const float* y, int64_t rows, int64_t width,
                                                      float* dx) {
  const float *mean = weights.mean, *of_dy = weights.of_dy, *of_x = weights.of_x,
              *constant = weights.constant;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t at = r * width;
    for (int64_t c = 0; c < width; ++c) {
      const float g = kMask && !(y[at + c] > 0) ? 0.0F : dy[at + c];
      dx[at + c] = of_dy[c] * g + of_x[c] * (x[at + c] - mean[c]) + constant[c];
    }
  }
}
HEARTH_CLONES void apply_tile(const Weights& weights, const float* x, const float* dy, const float* y,
                              int64_t rows, int64_t width, float* dx) {
  y == nullptr ? apply_rows<false>(weights, x, dy, y, rows, width, dx)
               : apply_rows<true>(weights, x, dy, y, rows, width, dx);
}
HEARTH_CLONES void mask(const float* dy, const float* y, int64_t count, float* out) {
  // Only called with a y, which the analyzer cannot see.
  for (int64_t i = 0; i < count; ++i) out[i] = y[i] > 0 ? dy[i] : 0.0F;  // NOLINT
}

struct Scratch {
  alignas(64) float x[kNormTile];
  alignas(64) float dy[kNormTile];
  alignas(64) float y[kNormTile];
  alignas(64) float out[kNormTile];
};

struct Job {
  NormShape shape;
  bool relu;
  bool residual;
};

struct TileInputs {
  const float* x;
  const float* dy;
  const float* y;
};
TileInputs load_tile(const Job& job, const KernelArgs& args, int64_t at, int64_t count, Scratch& scratch) {
  const DType dtype = job.shape.dtype;
  return {.x = cpu::as_f32(dtype, args.in[NormGradIn::x], at, count, scratch.x),
          .dy = cpu::as_f32(dtype, args.in[NormGradIn::dy], at, count, scratch.dy),
          .y = job.relu ? cpu::as_f32(dtype, args.in[NormGradIn::y], at, count, scratch.y) : nullptr};
}

void sum_part(const Job& job, const KernelArgs& args, Range range, double* sum, double* sum_x) {
  Scratch scratch;
  alignas(64) float tile_sum[kNormTile];
  std::fill(sum, sum + job.shape.width, 0.0);
  std::fill(sum_x, sum_x + job.shape.width, 0.0);
  for_each_tile(job.shape, range.begin, range.end, [&](int64_t row, int64_t rows, int64_t c, int64_t width) {
    const TileInputs tile = load_tile(job, args, row * job.shape.width + c, rows * width, scratch);
    sum_tile(tile.x, tile.dy, tile.y, args.input<float>(NormGradIn::mean) + c, rows, width, tile_sum,
             scratch.out);
    cpu::add_row(tile_sum, sum + c, width);
    cpu::add_row(scratch.out, sum_x + c, width);
  });
}

void sums(const Job& job, const KernelArgs& args, const NormWorkspace& work) {
  const int64_t width = job.shape.width;
  args.threads->for_parts(job.shape.parts, [&](int p) {
    const Range range = split_range(job.shape.rows, job.shape.parts, p);
    sum_part(job, args, range, work.first + p * width, work.second + p * width);
  });
  for (int64_t i = width; i < job.shape.parts * width; ++i) {
    work.first[i % width] += work.first[i];
    work.second[i % width] += work.second[i];
  }
}

/// Writes dweight and dbias and the weights of dx.
void finish_sums(const Job& job, const KernelArgs& args, const NormWorkspace& work) {
  const auto rows = static_cast<double>(job.shape.rows);
  for (int64_t c = 0; c < job.shape.width; ++c) {
    const double rstd = static_cast<double>(args.input<float>(NormGradIn::rstd)[c]);
    const double scale = rstd * static_cast<double>(args.input<float>(NormGradIn::weight)[c]);
    args.output<float>(1)[c] = static_cast<float>(work.second[c] * rstd);
    args.output<float>(2)[c] = static_cast<float>(work.first[c]);
    work.a[c] = static_cast<float>(scale);
    work.b[c] = static_cast<float>(-scale * rstd * rstd * work.second[c] / rows);
    work.c[c] = static_cast<float>(-scale * work.first[c] / rows);
  }
}

void apply(const Job& job, const KernelArgs& args, const NormWorkspace& work, Range range) {
  Scratch scratch;
  const DType dtype = job.shape.dtype;
  for_each_tile(job.shape, range.begin, range.end, [&](int64_t row, int64_t rows, int64_t c, int64_t width) {
    const int64_t at = row * job.shape.width + c;
    const int64_t count = rows * width;
    const TileInputs tile = load_tile(job, args, at, count, scratch);
    const Weights weights{.mean = args.input<float>(NormGradIn::mean) + c,
                          .of_dy = work.a + c,
                          .of_x = work.b + c,
                          .constant = work.c + c};
    float* dx = run_to_write(dtype, args.out[0], at, scratch.out);
    apply_tile(weights, tile.x, tile.dy, tile.y, rows, width, dx);
    cpu::store_f32(dtype, dx, args.out[0], at, count);
    if (!job.residual) return;
    float* dresidual = run_to_write(dtype, args.out[3], at, scratch.out);
    mask(tile.dy, tile.y, count, dresidual);
    cpu::store_f32(dtype, dresidual, args.out[3], at, count);
  });
}

bool has_relu(const Attrs& attrs) { return attrs.text_or("activation", "none") == "relu"; }

Inferred infer(const NodeView& node) {
  if (auto error = check_norm_inputs(node, batch_norm_grad, NormGradIn::rstd); !error.empty())
    return refuse(error);
  const Type& x = node.in_type(NormGradIn::x);
  if (node.in_type(NormGradIn::dy) != x) return refuse_type("dy", to_string(x), node.in_type(NormGradIn::dy));
  const bool relu = has_relu(node.attrs);
  if (relu != node.has_input(NormGradIn::y)) return refuse("expected y exactly when the activation is relu");
  if (relu && node.in_type(NormGradIn::y) != x)
    return refuse_type("y", to_string(x), node.in_type(NormGradIn::y));
  const Type channels = f32_type({x.shape.back()});
  std::vector<Type> out = {x, channels, channels};
  if (node.attrs.integer_or("residual", 0) != 0) {
    if (!relu) return refuse("expected activation relu: without it the residual's gradient is dy itself");
    out.push_back(x);
  }
  return {.out = out, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const Job job{.shape = norm_shape(node.in_type(NormGradIn::x)),
                .relu = has_relu(node.attrs),
                .residual = node.attrs.integer_or("residual", 0) != 0};
  const auto run = [job](const KernelArgs& args) {
    const NormWorkspace work = norm_workspace(job.shape, args.workspace);
    sums(job, args, work);
    finish_sums(job, args, work);
    args.threads->parallel_for(job.shape.rows, std::max<int64_t>(1, kNormTile / job.shape.width),
                               [&](Range range) { apply(job, args, work, range); });
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(job.shape)};
}

void reference(const ReferenceArgs& args) {
  const std::vector<double>& x = args.in[NormGradIn::x];
  const size_t width = args.in[NormGradIn::weight].size();
  const auto rows = static_cast<double>(x.size() / width);
  const bool relu = has_relu(args.node.attrs);
  const auto g = [&](size_t i) {
    return relu && !(args.in[NormGradIn::y][i] > 0) ? 0.0 : args.in[NormGradIn::dy][i];
  };
  for (size_t c = 0; c < width; ++c) {
    const double mean = args.in[NormGradIn::mean][c], rstd = args.in[NormGradIn::rstd][c];
    double sum = 0, sum_x = 0;
    for (size_t i = c; i < x.size(); i += width) {
      sum += g(i);
      sum_x += g(i) * (x[i] - mean) * rstd;
    }
    args.out[1][c] = sum_x;
    args.out[2][c] = sum;
    for (size_t i = c; i < x.size(); i += width) {
      args.out[0][i] =
          args.in[NormGradIn::weight][c] * rstd * (g(i) - sum / rows - (x[i] - mean) * rstd * sum_x / rows);
    }
  }
  if (args.out.size() < 4) return;
  for (size_t i = 0; i < x.size(); ++i) args.out[3][i] = g(i);
}

Cost cost(const NodeView& node) { return stream_cost(node, 12); }

Sample sample(const Shape& shape, DType dtype, bool relu, int64_t residual, double tolerance) {
  const Shape channels{shape.back()};
  Sample made{.in = {normal(shape, dtype), normal(channels), normal(channels), positive(channels),
                     normal(shape, dtype)},
              .attrs = {{"activation", std::string(relu ? "relu" : "none")}, {"residual", residual}},
              .tolerance = tolerance};
  if (relu) made.in.push_back(normal(shape, dtype));
  return made;
}

std::vector<Sample> samples() {
  return {
      sample({6, 5}, DType::f32, false, 0, 1e-5),         sample({3, 5, 3, 7}, DType::f32, true, 0, 1e-5),
      sample({4, 16, 16, 33}, DType::f32, true, 1, 1e-5), sample({3, 8200}, DType::f32, true, 1, 1e-5),
      sample({4, 3, 3, 20}, DType::bf16, true, 1, 1e-2),  sample({4, 3, 3, 20}, DType::f16, false, 0, 2e-3),
      sample({2, 7, 9, 72}, DType::bf16, true, 1, 1e-2)};
}

}  // namespace

const OpDef batch_norm_grad{
    .name = "batch_norm_grad",
    .doc =
        "batch_norm_grad(x, weight, mean, rstd, dy, y?): dx, dweight, dbias and, if `residual` is 1, "
        "dresidual; with activation relu dy is masked by y > 0",
    .inputs = {"x", "weight", "mean", "rstd", "dy", "y?"},
    .infer = infer,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .samples = samples};

}  // namespace hearth::ops
