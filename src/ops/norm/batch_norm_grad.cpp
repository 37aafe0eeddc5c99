#include "ops/elementwise/formulas.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

// Gradient of batch_norm. Let xhat = (x - mean) rstd, n the number of rows, and g the gradient before the
// activation: dy without activation, dy where y > 0 (otherwise 0) for relu, dy silu'(weight xhat + bias) for
// silu. Then dbias = sum g, dweight = sum g xhat, dx = weight rstd (g - dbias / n - xhat dweight / n).

struct NormGradIn {
  enum : size_t { x, weight, mean, rstd, dy, y, bias, mask };
};

Inferred infer(const NodeView& node) {
  if (auto error = check_norm_inputs(node, batch_norm_grad, NormGradIn::rstd); !error.empty())
    return refuse(error);
  const Type& x = node.in_type(NormGradIn::x);
  if (node.in_type(NormGradIn::dy) != x) return refuse_type("dy", to_string(x), node.in_type(NormGradIn::dy));
  const NormActivation activation = norm_activation(node.attrs);
  const bool relu = activation == NormActivation::relu, silu = activation == NormActivation::silu;
  const bool masked = node.has_input(NormGradIn::mask), has_y = node.has_input(NormGradIn::y);
  if (has_y + masked != static_cast<int>(relu))
    return refuse("expected either y or its mask if and only if the activation is relu");
  if (has_y && node.in_type(NormGradIn::y) != x)
    return refuse_type("y", to_string(x), node.in_type(NormGradIn::y));
  if (masked && (!may_have_mask(x) || node.in_type(NormGradIn::mask) != mask_type(x)))
    return refuse_type("the mask", to_string(mask_type(x)), node.in_type(NormGradIn::mask));
  const Type channels = f32_type({x.shape.back()});
  if (silu != node.has_input(NormGradIn::bias))
    return refuse("expected the bias if and only if the activation is silu");
  if (silu && node.in_type(NormGradIn::bias) != channels)
    return refuse_type("bias", to_string(channels), node.in_type(NormGradIn::bias));
  std::vector<Type> out = {x, channels, channels};
  if (node.attrs.integer_or("residual", 0) != 0) {
    if (!relu)
      return refuse("residual=1 requires activation=relu: without relu the gradient of the residual is dy");
    out.push_back(x);
  }
  return {.out = out, .error = ""};
}

/// Computes dweight and dbias from the sums in `work`, and the coefficients work.b and work.c of
/// spread_gradient().
void finish_sums(const NormShape& shape, const KernelArgs& args, const NormWorkspace& work) {
  const auto rows = static_cast<double>(shape.rows);
  for (int64_t c = 0; c < shape.width; ++c) {
    const double rstd = static_cast<double>(args.input<float>(NormGradIn::rstd)[c]);
    const double scale = rstd * static_cast<double>(args.input<float>(NormGradIn::weight)[c]);
    args.output<float>(1)[c] = static_cast<float>(work.second[c] * rstd);
    args.output<float>(2)[c] = static_cast<float>(work.first[c]);
    work.b[c] = static_cast<float>(-scale * rstd * rstd * work.second[c] / rows);
    work.c[c] = static_cast<float>(-scale * work.first[c] / rows);
  }
}

Kernel kernel(const NodeView& node) {
  const NormShape shape = norm_shape(node.in_type(NormGradIn::x));
  const auto run = [shape, activation = norm_activation(node.attrs), has_y = node.has_input(NormGradIn::y),
                    masked = node.has_input(NormGradIn::mask),
                    dx = node.out_type(0)](const KernelArgs& args) {
    const NormWorkspace work = norm_workspace(shape, args.workspace);
    for (int64_t c = 0; c < shape.width; ++c)
      work.a[c] = args.input<float>(NormGradIn::rstd)[c] * args.input<float>(NormGradIn::weight)[c];
    NormCotangents in{.x = args.in[NormGradIn::x],
                      .dy = args.in[NormGradIn::dy],
                      .y = has_y ? args.in[NormGradIn::y] : nullptr,
                      .mean = args.input<float>(NormGradIn::mean),
                      .scale = work.a};
    if (activation == NormActivation::silu) in.bias = args.input<float>(NormGradIn::bias);
    if (in.bias != nullptr && shape.dtype == DType::f32) in.made = args.output<float>(0);
    if (masked) {
      void* g = args.out.size() > 3 ? args.out[3] : args.out[0];
      apply_mask(dx, in.dy, args.input<uint8_t>(NormGradIn::mask), g, *args.threads);
      in.dy = g;
    }
    gradient_sums(shape, in, work, *args.threads);
    if (in.made != nullptr) {
      in.dy = in.made;
      in.bias = nullptr;
    }
    finish_sums(shape, args, work);
    spread_gradient(shape, in, work, args.out[0], args.out.size() > 3 && !masked ? args.out[3] : nullptr,
                    *args.threads);
  };
  return {.run = run, .workspace_bytes = norm_workspace_bytes(shape)};
}

void reference(const ReferenceArgs& args) {
  const std::vector<double>& x = args.in[NormGradIn::x];
  const size_t width = args.in[NormGradIn::weight].size();
  const auto rows = static_cast<double>(x.size() / width);
  const NormActivation activation = norm_activation(args.node.attrs);
  const auto g = [&](size_t i) {
    const double dy = args.in[NormGradIn::dy][i];
    if (args.node.has_input(NormGradIn::mask)) return is_set(args.in[NormGradIn::mask], i) ? dy : 0.0;
    if (activation == NormActivation::relu) return args.in[NormGradIn::y][i] > 0 ? dy : 0.0;
    if (activation == NormActivation::none) return dy;
    const size_t c = i % width;
    const double scale = args.in[NormGradIn::rstd][c] * args.in[NormGradIn::weight][c];
    return SiluGrad()(dy, (x[i] - args.in[NormGradIn::mean][c]) * scale + args.in[NormGradIn::bias][c], 0.0);
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

Sample sample(const Shape& shape, DType dtype, const char* activation, int64_t residual, double tolerance) {
  const Shape channels{shape.back()};
  Sample made{.in = {normal(shape, dtype), normal(channels), normal(channels), positive(channels),
                     normal(shape, dtype)},
              .attrs = {{"activation", std::string(activation)}, {"residual", residual}},
              .tolerance = tolerance};
  const NormActivation kind = norm_activation(made.attrs);
  if (kind == NormActivation::relu) made.in.push_back(normal(shape, dtype));
  if (kind == NormActivation::silu) made.in.insert(made.in.end(), {absent(), normal(channels)});
  return made;
}

Sample masked_sample(int64_t residual) {
  Sample made = sample({2, 7, 9, 72}, DType::bf16, "relu", residual, 1e-2);
  made.in.back() = absent();
  made.in.push_back(absent());
  made.in.push_back(indices({2 * 7 * 9 * 72 / kMaskElements}, 256, DType::u8));
  return made;
}

std::vector<Sample> samples() {
  return {masked_sample(0),
          masked_sample(1),
          sample({6, 5}, DType::f32, "none", 0, 1e-5),
          sample({3, 5, 3, 7}, DType::f32, "relu", 0, 1e-5),
          sample({4, 16, 16, 33}, DType::f32, "relu", 1, 1e-5),
          sample({3, 8200}, DType::f32, "relu", 1, 1e-5),
          sample({4, 3, 3, 20}, DType::bf16, "relu", 1, 1e-2),
          sample({4, 3, 3, 20}, DType::f16, "none", 0, 2e-3),
          sample({2, 7, 9, 72}, DType::bf16, "relu", 1, 1e-2),
          sample({3, 5, 3, 7}, DType::f32, "silu", 0, 1e-5),
          sample({3, 8200}, DType::f32, "silu", 0, 1e-5),
          sample({2, 7, 9, 72}, DType::bf16, "silu", 0, 1e-2)};
}

}  // namespace

const OpDef batch_norm_grad{.name = "batch_norm_grad",
                            .doc =
                                "batch_norm_grad(x, weight, mean, rstd, dy, y?, bias?, mask?): dx, dweight, "
                                "dbias and, if `residual` is 1, dresidual; with activation relu dy is masked "
                                "by y > 0 or by the mask of batch_norm, with silu the bias serves to "
                                "recompute its input",
                            .inputs = {"x", "weight", "mean", "rstd", "dy", "y?", "bias?", "mask?"},
                            .infer = infer,
                            .no_vjp_because = kNoSecondDerivatives,
                            .cpu = kernel,
                            .gpu = true,
                            .reference = reference,
                            .cost = cost,
                            .samples = samples};

}  // namespace hearth::ops
