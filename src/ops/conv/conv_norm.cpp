#include <algorithm>
#include <cmath>

#include "backend/cpu/convert.h"
#include "ops/conv/conv.h"
#include "ops/norm/batch_norm_kernels.h"
#include "ops/norm/norm.h"
#include "ops/support.h"

namespace hearth::ops {
namespace {

constexpr int64_t kLine = 64;
int64_t whole_lines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

Inferred infer_moments(const NodeView& node) {
  Inferred result = conv2d.infer(node);
  if (result.error.empty()) result.out.push_back(moments_type(result.out[0]));
  return result;
}

Kernel moments_kernel(const NodeView& node) {
  const Kernel conv = conv2d.cpu(node);
  const NormShape shape = norm_shape(node.out_type(0));
  const int64_t behind = whole_lines(conv.workspace_bytes);
  const auto run = [conv, shape, behind](const KernelArgs& args) {
    conv.run(args);
    measure_groups(shape, args.out[0], norm_workspace(shape, args.workspace + behind), args.output<float>(1),
                   *args.threads);
  };
  return {.run = run, .workspace_bytes = behind + norm_workspace_bytes(shape)};
}

void moments_reference(const ReferenceArgs& args) {
  conv2d.reference(args);
  const std::vector<double>& y = args.out[0];
  const auto width = static_cast<size_t>(args.node.out_type(0).shape.back());
  const size_t rows = y.size() / width;
  for (size_t first = 0; first < rows; first += kMomentRows) {
    const size_t end = std::min(rows, first + kMomentRows);
    for (size_t c = 0; c < width; ++c) {
      double mean = 0, squares = 0;
      for (size_t r = first; r < end; ++r) mean += y[r * width + c] / static_cast<double>(end - first);
      for (size_t r = first; r < end; ++r) squares += (y[r * width + c] - mean) * (y[r * width + c] - mean);
      args.out[1][first / kMomentRows * 2 * width + c] = mean;
      args.out[1][(first / kMomentRows * 2 + 1) * width + c] = squares;
    }
  }
}

Cost moments_cost(const NodeView& node) {
  const Type x = node.in_type(ConvIn::x);
  Cost cost = conv2d.cost(node);
  cost.bytes -= skipped_bytes(x, conv_shape(x.shape, node.in_type(ConvIn::w).shape, node.attrs));
  return cost;
}

ir::Node without_moments(const ir::Node& node) {
  ir::Node again = node;
  again.op = &conv2d;
  again.outputs.clear();
  return again;
}

/// Attributes and input types of the conv2d that a conv2d_norm runs. `whole` is true to include the residual
/// and the activation.
struct InnerConv {
  Attrs attrs;
  std::vector<Type> in;

  InnerConv(const NodeView& node, bool whole)
      : attrs(node.attrs), in{node.in_type(ConvNormIn::x), node.in_type(ConvNormIn::w)} {
    if (!whole) attrs.set("activation", std::string("none"));
    in.push_back(f32_type({node.in_type(ConvNormIn::w).shape.back()}));
    in.push_back(whole && node.has_input(ConvNormIn::residual) ? node.in_type(ConvNormIn::residual)
                                                               : Type{.dtype = DType::boolean, .shape = {}});
  }
  NodeView view(const NodeView& node) const {
    return {.attrs = attrs, .in = in, .out = node.out, .num_threads = node.num_threads};
  }
};

Inferred infer_norm(const NodeView& node) {
  if (node.in_type(ConvNormIn::w).shape.rank() != 4)
    return refuse_type("the weight", "an array of rank 4", node.in_type(ConvNormIn::w));
  const Type channels = f32_type({node.in_type(ConvNormIn::w).shape.back()});
  for (size_t i = ConvNormIn::weight; i < std::min<size_t>(ConvNormIn::residual, node.in.size()); ++i) {
    if (node.has_input(i) && node.in_type(i) != channels)
      return refuse_type(fmt::format("input '{}'", conv2d_norm.input_name(i)), to_string(channels),
                         node.in_type(i));
  }
  const InnerConv inner(node, true);
  return conv2d.infer(inner.view(node));
}

/// Computes scaled = weights [rows, channels] times a factor per channel; both arrays have the given dtype.
void scale_columns(DType dtype, const void* weights, const float* factors, int64_t rows, int64_t channels,
                   void* scaled, ThreadPool& threads) {
  threads.parallel_for(rows, std::max<int64_t>(1, kGrain / channels), [&](Range range) {
    alignas(64) float in[kTile], out[kTile];
    for (int64_t r = range.begin; r < range.end; ++r) {
      for (int64_t c = 0; c < channels; c += kTile) {
        const int64_t count = std::min(kTile, channels - c), at = r * channels + c;
        const float* from = cpu::as_f32(dtype, weights, at, count, in);
        float* to = run_to_write(dtype, scaled, at, out);
        for (int64_t i = 0; i < count; ++i) to[i] = from[i] * factors[c + i];
        cpu::store_f32(dtype, to, scaled, at, count);
      }
    }
  });
}

/// Workspace layout of the folded normalization: factors, bias and scaled weights.
struct Folded {
  int64_t channels, weight_bytes;
  float* factors(std::byte* workspace) const { return reinterpret_cast<float*>(workspace); }
  float* bias(std::byte* workspace) const { return factors(workspace) + channels; }
  std::byte* weights(std::byte* workspace) const { return workspace + whole_lines(channels * 8); }
  std::byte* behind(std::byte* workspace) const { return weights(workspace) + whole_lines(weight_bytes); }
  int64_t num_bytes() const { return whole_lines(channels * 8) + whole_lines(weight_bytes); }
};

/// Folds the normalization into a factor and a bias per channel: factor = weight / sqrt(var + eps), bias =
/// norm bias + (conv bias - mean) * factor.
void fold(const KernelArgs& args, double eps, int64_t channels, float* factors, float* bias) {
  const auto *weight = args.input<float>(ConvNormIn::weight), *shift = args.input<float>(ConvNormIn::bias),
             *mean = args.input<float>(ConvNormIn::mean);
  const float* conv_bias =
      args.in.size() > ConvNormIn::conv_bias ? args.input<float>(ConvNormIn::conv_bias) : nullptr;
  for (int64_t c = 0; c < channels; ++c) {
    const double rstd = 1 / std::sqrt(static_cast<double>(args.input<float>(ConvNormIn::var)[c]) + eps);
    factors[c] = static_cast<float>(rstd) * weight[c];
    bias[c] = shift[c] + ((conv_bias == nullptr ? 0.0F : conv_bias[c]) - mean[c]) * factors[c];
  }
}

Kernel norm_kernel(const NodeView& node) {
  const InnerConv inner(node, true);
  const Kernel conv = conv2d.cpu(inner.view(node));
  const Type w = node.in_type(ConvNormIn::w);
  const Folded folded{w.shape.back(), w.num_bytes()};
  const auto run = [conv, w, folded, residual = node.has_input(ConvNormIn::residual),
                    eps = node.attrs.real_or("eps", 1e-5)](const KernelArgs& args) {
    float* factors = folded.factors(args.workspace);
    float* bias = folded.bias(args.workspace);
    std::byte* weights = folded.weights(args.workspace);
    fold(args, eps, folded.channels, factors, bias);
    scale_columns(w.dtype, args.in[ConvNormIn::w], factors, num_rows(w.shape), folded.channels, weights,
                  *args.threads);
    void* const in[] = {args.in[ConvNormIn::x], weights, bias,
                        residual ? args.in[ConvNormIn::residual] : nullptr};
    KernelArgs with = args;
    with.in = in;
    with.workspace = folded.behind(args.workspace);
    conv.run(with);
  };
  return {.run = run, .workspace_bytes = folded.num_bytes() + conv.workspace_bytes};
}

void norm_reference(const ReferenceArgs& args) {
  const InnerConv inner(args.node, false);
  const auto channels = static_cast<size_t>(args.node.in_type(ConvNormIn::w).shape.back());
  const std::vector<double> no_bias(channels, 0.0);
  const std::vector<double> in[] = {
      args.in[ConvNormIn::x],
      args.in[ConvNormIn::w],
      args.node.has_input(ConvNormIn::conv_bias) ? args.in[ConvNormIn::conv_bias] : no_bias,
      {}};
  const NodeView view = inner.view(args.node);
  conv2d.reference({.node = view, .in = in, .out = args.out});
  const bool relu = args.node.attrs.text_or("activation", "none") == "relu";
  const double eps = args.node.attrs.real_or("eps", 1e-5);
  for (size_t i = 0; i < args.out[0].size(); ++i) {
    const size_t c = i % channels;
    double y = (args.out[0][i] - args.in[ConvNormIn::mean][c]) /
                   std::sqrt(args.in[ConvNormIn::var][c] + eps) * args.in[ConvNormIn::weight][c] +
               args.in[ConvNormIn::bias][c];
    if (args.node.has_input(ConvNormIn::residual)) y += args.in[ConvNormIn::residual][i];
    args.out[0][i] = relu ? std::max(y, 0.0) : y;
  }
}

/// Returns a sample; tests choose x so that y has three groups of kMomentRows rows, the last one incomplete.
Sample base(const Shape& x, int64_t kernel, int64_t out, DType dtype, double tolerance) {
  return {.in = {normal(x, dtype), normal({kernel, kernel, x[3], out}, dtype)},
          .attrs = {{"stride", int64_t{1}}, {"padding", kernel / 2}},
          .tolerance = tolerance};
}

std::vector<Sample> moments_samples() {
  std::vector<Sample> result = {
      base({2, 9, 9, 5}, 3, 7, DType::f32, 1e-4),       base({1, 8, 8, 16}, 1, 40, DType::f32, 1e-4),
      base({2, 9, 11, 16}, 3, 17, DType::bf16, 2e-2),   base({3, 12, 12, 8}, 1, 70, DType::f16, 4e-3),
      base({1, 111, 111, 8}, 1, 17, DType::bf16, 2e-2), base({2, 9, 11, 16}, 1, 72, DType::bf16, 2e-2),
      base({1, 8, 8, 16}, 1, 37, DType::f32, 1e-4),     base({1, 111, 111, 8}, 3, 24, DType::bf16, 2e-2)};
  result[0].in.push_back(normal({7}));
  for (const DType dtype : {DType::f32, DType::bf16}) {
    result.push_back(base({2, 9, 9, 12}, 3, 24, dtype, dtype == DType::f32 ? 1e-4 : 2e-2));
    result.back().in[1] = normal({3, 3, 1, 24}, dtype);
    result.back().attrs.set("groups", int64_t{12});
  }
  result.push_back(base({1, 11, 9, 6}, 3, 8, DType::f32, 1e-4));
  result.back().attrs.set("dilation", int64_t{2});
  result.back().attrs.set("padding", int64_t{2});
  return result;
}

std::vector<Sample> norm_samples() {
  std::vector<Sample> result = moments_samples();
  for (size_t i = 0; i < result.size(); ++i) {
    Sample& sample = result[i];
    const Shape x = sample.in[0].type.shape, channels{sample.in[1].type.shape.back()};
    sample.in.resize(2);
    sample.in.insert(sample.in.end(),
                     {normal(channels), normal(channels), normal(channels), positive(channels)});
    if (i % 2 == 1) continue;
    sample.in.push_back(i == 0 ? normal(channels) : absent());
    sample.in.push_back(normal({x[0], x[1], x[2], channels[0]}, sample.in[0].type.dtype));
    sample.attrs.set("activation", std::string("relu"));
  }
  return result;
}

}  // namespace

const OpDef conv2d_moments{.name = "conv2d_moments",
                           .doc = "conv2d_moments(x, w, bias?): conv2d's y, and the moments of y",
                           .inputs = {"x", "w", "bias?"},
                           .infer = infer_moments,
                           .vjp = [](const ir::VjpContext& context) { return conv2d.vjp(context); },
                           .cpu = moments_kernel,
                           .gpu = true,
                           .reference = moments_reference,
                           .cost = moments_cost,
                           .precision = ir::Precision::compute,
                           .repeat = without_moments,
                           .samples = moments_samples};

const OpDef conv2d_norm{.name = "conv2d_norm",
                        .doc =
                            "conv2d_norm(x, w, weight, bias, mean, var, conv_bias?, residual?): "
                            "activation(batch_norm_infer(conv2d(x, w, conv_bias), ...) + residual)",
                        .inputs = {"x", "w", "weight", "bias", "mean", "var", "conv_bias?", "residual?"},
                        .infer = infer_norm,
                        .no_vjp_because = "it is for evaluation; train with conv2d_moments and batch_norm",
                        .cpu = norm_kernel,
                        .gpu = true,
                        .reference = norm_reference,
                        .cost = [](const NodeView& node) { return conv2d.cost(node); },
                        .precision = ir::Precision::compute,
                        .samples = norm_samples};

}  // namespace hearth::ops
