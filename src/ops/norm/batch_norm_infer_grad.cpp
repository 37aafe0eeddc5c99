#include <cmath>

#include "ops/norm/batch_norm_kernels.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

// Gradient of batch_norm_infer, whose statistics are constants. With g = dy, or 0 where a relu output y is 0:
// dx = weight rstd g, dbias = sum g, dweight = sum g (x - mean) rstd.

struct FrozenGradIn {
  enum : size_t { dy, weight, var, y, x, mean };
};

struct Options {
  double eps;
  bool given_rstd;
  bool relu;
  bool residual;

  double rstd_of(double statistic) const { return given_rstd ? statistic : 1 / std::sqrt(statistic + eps); }
};
Options options_of(const Attrs& attrs) {
  return {.eps = attrs.real_or("eps", 1e-5),
          .given_rstd = attrs.text_or("statistics", "variance") == "rstd",
          .relu = attrs.text_or("activation", "none") == "relu",
          .residual = attrs.integer_or("residual", 0) != 0};
}

Inferred infer(const NodeView& node) {
  if (auto error = check_norm_inputs(node, batch_norm_infer_grad, FrozenGradIn::var); !error.empty())
    return refuse(error);
  const Type& dy = node.in_type(FrozenGradIn::dy);
  const Type channels = f32_type({dy.shape.back()});
  const Options options = options_of(node.attrs);
  const bool measures = node.has_input(FrozenGradIn::x);
  if (options.relu != node.has_input(FrozenGradIn::y))
    return refuse("expected y if and only if the activation is relu");
  if (options.residual && !options.relu)
    return refuse("residual=1 requires activation=relu: without relu the gradient of the residual is dy");
  if (measures != node.has_input(FrozenGradIn::mean)) return refuse("expected both x and mean, or neither");
  for (const size_t i : {FrozenGradIn::y, FrozenGradIn::x})
    if (node.has_input(i) && node.in_type(i) != dy)
      return refuse_type(batch_norm_infer_grad.input_name(i), to_string(dy), node.in_type(i));
  if (measures && node.in_type(FrozenGradIn::mean) != channels)
    return refuse_type("mean", to_string(channels), node.in_type(FrozenGradIn::mean));
  std::vector<Type> out = {dy};
  if (measures) out.insert(out.end(), {channels, channels});
  if (options.residual) out.push_back(dy);
  return {.out = out, .error = ""};
}

Kernel kernel(const NodeView& node) {
  const NormShape shape = norm_shape(node.in_type(FrozenGradIn::dy));
  const bool measures = node.has_input(FrozenGradIn::x);
  const auto run = [=, options = options_of(node.attrs)](const KernelArgs& args) {
    const NormWorkspace work = norm_workspace(shape, args.workspace);
    NormCotangents in{.x = nullptr,
                      .dy = args.in[FrozenGradIn::dy],
                      .y = options.relu ? args.in[FrozenGradIn::y] : nullptr,
                      .mean = work.a};
    for (int64_t c = 0; c < shape.width; ++c) {
      const double rstd = options.rstd_of(static_cast<double>(args.input<float>(FrozenGradIn::var)[c]));
      work.a[c] = static_cast<float>(rstd * static_cast<double>(args.input<float>(FrozenGradIn::weight)[c]));
    }
    if (measures) {
      NormCotangents all = in;
      all.x = args.in[FrozenGradIn::x];
      all.mean = args.input<float>(FrozenGradIn::mean);
      gradient_sums(shape, all, work, *args.threads);
      for (int64_t c = 0; c < shape.width; ++c) {
        const double rstd = options.rstd_of(static_cast<double>(args.input<float>(FrozenGradIn::var)[c]));
        args.output<float>(1)[c] = static_cast<float>(work.second[c] * rstd);
        args.output<float>(2)[c] = static_cast<float>(work.first[c]);
      }
    }
    spread_gradient(shape, in, work, args.out[0], options.residual ? args.out.back() : nullptr,
                    *args.threads);
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(shape)};
}

void reference(const ReferenceArgs& args) {
  const std::vector<double>& dy = args.in[FrozenGradIn::dy];
  const size_t width = args.in[FrozenGradIn::weight].size();
  const Options options = options_of(args.node.attrs);
  const bool measures = args.node.has_input(FrozenGradIn::x);
  for (size_t c = 0; c < width; ++c) {
    const double rstd = options.rstd_of(args.in[FrozenGradIn::var][c]);
    double sum = 0, sum_x = 0;
    for (size_t i = c; i < dy.size(); i += width) {
      const double g = options.relu && !(args.in[FrozenGradIn::y][i] > 0) ? 0.0 : dy[i];
      args.out[0][i] = args.in[FrozenGradIn::weight][c] * rstd * g;
      if (options.residual) args.out.back()[i] = g;
      if (!measures) continue;
      sum += g;
      sum_x += g * (args.in[FrozenGradIn::x][i] - args.in[FrozenGradIn::mean][c]) * rstd;
    }
    if (!measures) continue;
    args.out[1][c] = sum_x;
    args.out[2][c] = sum;
  }
}

Cost cost(const NodeView& node) { return stream_cost(node, 6); }

struct Case {
  Shape shape;
  DType dtype;
  bool relu, residual, measures;
  double tolerance;
};
Sample sample(const Case& of) {
  const Shape channels{of.shape.back()};
  Sample made{.in = {normal(of.shape, of.dtype), normal(channels), positive(channels)},
              .attrs = {{"activation", std::string(of.relu ? "relu" : "none")},
                        {"residual", int64_t{of.residual}},
                        {"eps", 1e-3}},
              .tolerance = of.tolerance};
  made.in.push_back(of.relu ? normal(of.shape, of.dtype) : absent());
  if (of.measures) {
    made.in.push_back(normal(of.shape, of.dtype));
    made.in.push_back(normal(channels));
  }
  return made;
}

std::vector<Sample> samples() {
  std::vector<Sample> made;
  for (const Case& of : {Case{{6, 5}, DType::f32, false, false, false, 1e-5},
                         Case{{3, 5, 3, 7}, DType::f32, true, true, false, 1e-5},
                         Case{{4, 16, 16, 33}, DType::f32, true, true, true, 1e-5},
                         Case{{3, 8200}, DType::f32, true, false, true, 1e-5},
                         Case{{3, 8200}, DType::f32, false, false, false, 1e-5},
                         Case{{2, 5, 9, 12}, DType::f32, false, false, true, 1e-5},
                         Case{{4, 3, 3, 20}, DType::f16, true, false, false, 2e-3},
                         Case{{4, 3, 3, 24}, DType::f16, false, false, true, 2e-3},
                         Case{{4, 3, 3, 20}, DType::bf16, false, false, true, 1e-2},
                         Case{{2, 7, 9, 72}, DType::bf16, true, true, true, 1e-2}})
    made.push_back(sample(of));
  made.push_back(sample({{3, 5, 3, 7}, DType::f32, true, false, true, 1e-5}));
  made.back().attrs.set("statistics", std::string("rstd"));
  return made;
}

}  // namespace

const OpDef batch_norm_infer_grad{
    .name = "batch_norm_infer_grad",
    .doc =
        "batch_norm_infer_grad(dy, weight, var, y?, x?, mean?): dx; with x and mean also dweight and dbias; "
        "if `residual` is 1, dresidual; with activation relu dy is masked by y > 0",
    .inputs = {"dy", "weight", "var", "y?", "x?", "mean?"},
    .infer = infer,
    .no_vjp_because = kNoSecondDerivatives,
    .cpu = kernel,
    .gpu = true,
    .reference = reference,
    .cost = cost,
    .samples = samples};

}  // namespace hearth::ops
